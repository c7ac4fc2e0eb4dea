# SPDX-License-Identifier: Apache-2.0
"""`pip install .` gives a wheel that works by itself: the package, the shared library, the header
and the command, built from a copy of the tree and installed in an environment of its own.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
PARTS = ("bindings", "cmake", "cmd", "examples", "include", "src")
FILES = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml")


def run(*command, cwd=None):
    """A command's output; its error text is shown where it fails."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def header_version():
    text = (SOURCE / "include/shoal.h").read_text()
    return re.search(r'#define SHOAL_VERSION_STRING "(.+)"', text)[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without build isolation, so that the test needs no network."""
    copy = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        shutil.copytree(SOURCE / part, copy / part)
    for file in FILES:
        shutil.copy(SOURCE / file, copy / file)
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", "out", ".",
        cwd=copy)  # fmt: skip
    (found,) = (copy / "out").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment in which there is nothing but the wheel."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    run(sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--no-deps",
        "--no-index", wheel)  # fmt: skip
    return environment


def test_wheel_serves_every_python(wheel):
    assert re.fullmatch(rf"shoal-{re.escape(header_version())}-py3-none-linux_\w+\.whl", wheel.name)


def test_wheel_holds_what_it_needs_and_no_more(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "shoal/__init__.py",
        "shoal/include/shoal.h",
        "shoal/lib/libshoal.so",
        "shoal/torch/__init__.py",
    } <= names
    assert [name for name in names if name.endswith(".cpp")]
    inside = re.compile(r"shoal/|shoal-[\d.]+\.(dist-info|data)/")
    assert [name for name in names if not inside.match(name)] == []
    assert [name for name in names if "test" in name or "__pycache__" in name] == []


def test_command_is_on_path(installed):
    assert header_version() in run(installed / "bin/shoal", "--version")


def test_package_imports_without_torch(installed):
    code = "import shoal, sys; print(shoal.__file__); assert 'torch' not in sys.modules"
    assert str(installed) in run(installed / "bin/python", "-c", code, cwd=installed)


def test_c_program_builds_against_the_wheel(installed, tmp_path):
    (package,) = installed.glob("lib/python3*/site-packages/shoal")
    source = tmp_path / "version.c"
    source.write_text(
        "#include <shoal.h>\n#include <stdio.h>\nint main(void) { puts(shoal_version()); }\n"
    )
    library = package / "lib"
    run("cc", source, "-o", tmp_path / "version", f"-I{package / 'include'}", f"-L{library}",
        "-lshoal", f"-Wl,-rpath,{library}")  # fmt: skip
    assert run(tmp_path / "version").strip() == header_version()
