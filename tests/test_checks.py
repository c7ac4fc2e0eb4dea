# SPDX-License-Identifier: Apache-2.0
"""The checks under tools/ find what they say they find: each rule is broken once, in a scratch
repository, and the check must name the file and the line; the same repository without the breach
passes.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
HEAD = "/* SPDX-License-Identifier: Apache-2.0 */\n/* A file that exists for this test alone. */\n"
BODY = "    step();\n"
GOOD = {
    "include/shoal.h": HEAD + "#define SHOAL_API\nSHOAL_API int shoal_version(void);\n",
    "src/base/status.h": HEAD,
    "src/base/status.c": HEAD + '#include "base/status.h"\n#include "shoal.h"\n',
    "src/kernel/form.h": HEAD,
    "src/net/tcp.c": HEAD + '#include "base/status.h"\n',
    "src/coll/ring.c": HEAD + '#include "comm/schedule.h"\n',
    "cmd/shoal/run.c": HEAD + '#include "neighbour.h"\n#include "launch/launch.h"\n',
    "src/base/status_test.c": HEAD + '#include "net/tcp.h"\n',
}


@pytest.fixture
def repository(tmp_path):
    """A small tree that keeps all the rules, with the tools in it."""
    shutil.copytree(SOURCE / "tools", tmp_path / "tools")
    for name, text in GOOD.items():
        write(tmp_path, name, text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def write(repository, name, text):
    path = repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if text.startswith("#!") else 0o644)


def run(repository, tool, *arguments):
    """The lines that a tool prints about the scratch files, after checking its exit status."""
    result = subprocess.run(
        [repository / "tools" / tool, *arguments],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in result.stdout.splitlines() if not line.startswith("tools/")]
    assert result.stderr == ""
    assert result.returncode == (1 if result.stdout else 0)
    return lines


def test_a_good_tree_passes(repository):
    assert run(repository, "check-style") == []
    assert run(repository, "check-layers") == []


STYLE_BREACHES = [
    ("src/base/a.c", "int x;\n", ":1: the licence line is missing"),
    ("src/base/a.c", HEAD.splitlines()[0] + "\nint x;\n", ":2: no head comment"),
    ("tools/a", "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\nset -u\n", ":3: no head"),
    ("src/base/a.c", HEAD + "void f(void)\n{\n" + BODY * 68 + "}\n", ":3: f has 71 lines"),
    ("a.py", "# SPDX-License-Identifier: Apache-2.0\n" + '"""' + "What this is for, and why.\n" * 2
     + '"""\ndef f():\n' + "    x()\n" * 71, ":5: f has 72 lines"),
    ("src/base/a.c", HEAD + "\n" * 799, ":801: 801 lines"),
    ("src/base/a.c", HEAD + "/* TO" "DO: more */\n", ":3: an open end"),
    ("docs/a.md", "fetch it from files.pythonhosted" ".org\n", ":1: names a package registry"),
    ("src/base/a.c", HEAD + "// x = f(1);\n", ":3: looks like code"),
    ("src/base/a.c", HEAD + "/* f(x, y); */\n", ":3: looks like code"),
    ("src/base/a.c", HEAD + "#if 0\n#endif\n", ":3: looks like code"),
    ("src/base/a_test.c", HEAD + "    skip();\n", ":3: a test is skipped without a reason"),
    ("src/base/utils.c", HEAD, ":1: 'utils.c' is named after nothing"),
    ("src/base/a.c", HEAD + "int base_run_helper(int x)\n", ":3: base_run_helper is named"),
]  # fmt: skip


@pytest.mark.parametrize("name, text, message", STYLE_BREACHES)
def test_style_breach_is_named(repository, name, text, message):
    write(repository, name, text)
    result = subprocess.run(
        [repository / "tools/check-style"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert name + message in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_mode_goes_with_the_first_line(repository):
    head = "# SPDX-License-Identifier: Apache-2.0\n# A program that exists for this test alone.\n"
    write(repository, "a.sh", "#!/bin/sh\n" + head + "true\n")
    write(repository, "src/base/a.c", HEAD)
    assert run(repository, "check-style") == []
    (repository / "a.sh").chmod(0o644)
    (repository / "src/base/a.c").chmod(0o755)
    assert run(repository, "check-style") == [
        "a.sh:1: #! without mode +x",
        "src/base/a.c:1: can be run without a #! line",
    ]


def test_style_at_the_limits_passes(repository):
    write(repository, "src/base/a.c", HEAD + "void f(void)\n{\n" + BODY * 67 + "}\n")
    write(repository, "src/base/b.c", HEAD + "\n" * 798)
    write(repository, "src/base/c.c", HEAD + "/* f(x) is called first; then g. */\n")
    assert run(repository, "check-style") == []


LAYER_BREACHES = [
    ("src/base/a.c", '#include "net/tcp.h"\n', 'base may not include "net/tcp.h"'),
    ("src/coll/a.c", '#include "comm/group.h"\n', 'coll may not include "comm/group.h"'),
    ("src/launch/a.c", '#include "comm/group.h"\n', 'launch may not include "comm/group.h"'),
    ("src/net/a.c", '#include "tcp.h"\n', 'net may not include "tcp.h"'),
    ("examples/a.c", '#include "base/status.h"\n', 'examples may not include "base/status.h"'),
    ("bindings/torch/a.cpp", '#include "comm/x.h"\n', 'bindings may not include "comm/x.h"'),
    ("src/attic/a.c", "\n", "there is no room named attic"),
]


@pytest.mark.parametrize("name, line, message", LAYER_BREACHES)
def test_layer_breach_is_named(repository, name, line, message):
    write(repository, name, HEAD + line)
    (found,) = run(repository, "check-layers")
    assert found.startswith(f"{name}:")
    assert message in found


def compile_object(repository, name, code):
    """Compiles code as the build does for src/<room>/<file>.c."""
    target = repository / "build/CMakeFiles/shoal_library_objects.dir" / (name + ".o")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-fPIC", "-x", "c", "-c", "-o", target, "-"], input=code, text=True, check=True
    )
    return target


def test_symbols_carry_their_room(repository):
    compile_object(repository, "src/base/good.c", "int base_x; static int y; int *base_y = &y;")
    compile_object(repository, "src/api/good.c", "int shoal_x(void) { return 0; }")
    assert run(repository, "check-layers", "build") == []
    compile_object(repository, "src/base/bad.c", "int count;")
    assert run(repository, "check-layers", "build") == [
        "src/base/bad.c:1: count is global and must start with base_ (or be static)"
    ]


def test_use_of_a_room_above_is_found(repository):
    compile_object(repository, "src/comm/a.c", "int comm_f(void) { return 0; }")
    caller = "int comm_f(void); int net_g(void) { return comm_f(); }"
    compile_object(repository, "src/net/b.c", caller)
    assert run(repository, "check-layers", "build") == [
        "src/net/b.c:1: net may not use comm_f, which belongs to comm"
    ]


def test_shared_library_shows_what_the_header_declares(repository):
    good = compile_object(repository, "src/api/a.c", "int shoal_version(void) { return 1; }")
    bad = compile_object(repository, "src/api/b.c", "int leaked(void) { return 1; }")
    other = compile_object(repository, "src/api/c.c", "static int x; int f(void);")
    library = repository / "build/libshoal.so"
    for objects, message in (
        ([good], None),
        ([good, bad], "exports leaked, which include/shoal.h does not declare"),
        ([other], "include/shoal.h:4: shoal_version is declared but libshoal.so does not define"),
    ):
        subprocess.run(["cc", "-shared", "-o", library, *objects], check=True)
        found = run(repository, "check-symbols", "build")
        assert len(found) == (message is not None)
        assert message is None or message in found[0]
