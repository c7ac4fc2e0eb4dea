# SPDX-License-Identifier: Apache-2.0
"""What bench/headline.py and bench/pipeline.py have in common: options, numbers, their files."""

import argparse
import json
from pathlib import Path

import libraries
from comparison import replace_file


def percent(share):
    return f"{100 * share:+.0f} %"


def numbers(text, least, wanted):
    """An option's whole numbers, none below the least; wanted: what the error asks for."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = [least - 1]
    if min(found) < least:
        raise argparse.ArgumentTypeError(f"{text}: {wanted}")
    return found


def add_options(parser):
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    parser.add_argument("--out", type=Path, default=libraries.ROOT / "out/bench")
    parser.add_argument("--json", action="store_true", help="print what is written, too")
    parser.add_argument(
        "--declare", action="store_true", help="measure nothing, write only what is to be measured"
    )
    parser.add_argument("--shoal", default=str(libraries.DEFAULT_SHOAL), help="the command")


def split_names(parser, arguments, **known):
    """Options that are lists of names become lists; a name that is not known is an error."""
    for option, names in known.items():
        chosen = getattr(arguments, option).split(",")
        setattr(arguments, option, chosen)
        if unknown := set(chosen) - set(names):
            parser.error(f"--{option} {', '.join(sorted(unknown))}: there are {', '.join(names)}")


def write(result, folder, file, picture_file):
    """The result, and its picture where it has one yet."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / file, json.dumps(result.content(), indent=1) + "\n")
    picture = result.picture(standalone=True)
    if picture:
        replace_file(folder / picture_file, picture)
    else:
        (folder / picture_file).unlink(missing_ok=True)
