# SPDX-License-Identifier: Apache-2.0
"""The files of this project, by kind, for the checks in this folder."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files():
    """Every file that git tracks or would track, relative to the root, sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    paths = (Path(name) for name in listing.split("\0") if name)
    return sorted(path for path in paths if (ROOT / path).is_file())


def read(path):
    """The text of a file of the project, or None where it is not text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def shebang(path):
    with open(ROOT / path, "rb") as file:
        first = file.readline(80)
    return first.decode(errors="replace") if first.startswith(b"#!") else ""


def kind(path):
    """One of c, c++, python, shell, build, or "" for everything else."""
    if path.suffix in (".c", ".h"):
        return "c"
    if path.suffix in (".cc", ".cpp", ".hpp"):
        return "c++"
    if path.suffix == ".py":
        return "python"
    if path.suffix == ".sh":
        return "shell"
    if path.suffix == ".cmake" or path.name in ("CMakeLists.txt", "Makefile"):
        return "build"
    if not path.suffix:
        interpreter = re.search(r"\b(python3?|bash|sh)\s*$", shebang(path))
        if interpreter:
            return "python" if interpreter[1].startswith("python") else "shell"
    return ""


def files_of(*kinds):
    return [path for path in files() if kind(path) in kinds]
