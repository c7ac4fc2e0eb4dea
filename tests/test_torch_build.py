# SPDX-License-Identifier: Apache-2.0
"""How the PyTorch binding is found and compiled: once for many processes, with errors that help.

A script stands in for the compiler where only the way around it is tested; it hands out the
binding that the build made, and writes down that it was called.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import ranks

pytest.importorskip("torch")

IMPORT = "import shoal.torch; print('imported')"
COMPILER = """#!/bin/sh
echo called >> "{log}"
sleep 1
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && cp "{binding}" "$2"
    shift
done
"""


@pytest.fixture
def place(tmp_path):
    """A build folder with the library but without the binding, an empty cache, and a compiler."""
    bindings = list((ranks.BUILD / "torch").glob("shoal_torch_backend-*.so"))
    if not bindings:
        pytest.skip("the build has no PyTorch binding")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "libshoal.so").symlink_to(ranks.BUILD / "libshoal.so")
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(log=tmp_path / "log", binding=bindings[0]))
    compiler.chmod(0o755)
    return tmp_path


def start(place, **environment: str) -> subprocess.Popen:
    environment = {
        **ranks.ENVIRONMENT,
        "SHOAL_BUILD": str(place / "build"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "CXX": str(place / "compiler"),
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-c", IMPORT], env=environment, stdout=-1, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen) -> str:
    text = process.communicate(timeout=100)[0].decode()
    return f"{text}\nstatus {process.returncode}"


def test_several_processes_compile_once(place):
    texts = [finish(process) for process in [start(place) for _ in range(3)]]
    assert all("imported\n\nstatus 0" in text for text in texts), texts
    assert sum("compiling the PyTorch binding" in text for text in texts) == 1
    assert (place / "log").read_text() == "called\n"
    assert "compiling" not in finish(start(place))
    files = sorted(os.listdir(place / "cache" / "shoal"))
    assert len(files) == 2 and files[0] == ".lock" and files[1].endswith(".so")


def test_a_compiler_that_fails_is_quoted(place):
    (place / "compiler").write_text("#!/bin/sh\necho there is no such header >&2\nexit 3\n")
    text = finish(start(place))
    assert "could not be compiled (status 3)" in text
    assert "there is no such header" in text
    assert [name for name in os.listdir(place / "cache" / "shoal")] == [".lock"]


def test_no_compiler_is_explained(place):
    assert "needs a C++ compiler, and there is no '/nowhere/c++'" in finish(
        start(place, CXX="/nowhere/c++")
    )


def test_a_cache_that_cannot_be_written_is_explained(place):
    (place / "file").write_text("")
    text = finish(start(place, XDG_CACHE_HOME=str(place / "file")))
    assert "XDG_CACHE_HOME" in text and "status 1" in text
