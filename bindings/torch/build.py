# SPDX-License-Identifier: Apache-2.0
"""Compiles the PyTorch binding: one C++ file against the torch that is installed here.

torch has no stable binary interface for backends, so the binding belongs to one version of torch
and Python. The build compiles it ahead of time where torch is there (bindings/torch/CMakeLists.txt
calls this file as a program); otherwise the first `import shoal.torch` does, into a cache. The
file's name holds the versions and a hash of the sources, so a stale one is never taken.

The binding is not linked with libshoal.so: package shoal loads that first, for all.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "shoal_torch_backend"
# One compiler call takes one to two minutes on a slow machine.
COMPILE_SECONDS_MAX = 900


class CompileError(ImportError):
    """The binding could not be compiled; the text holds what the compiler said."""


def header() -> Path:
    """shoal.h: inside the installed package, or in the source tree."""
    for folder in (HERE.parent / "include", HERE.parent.parent / "include"):
        if (folder / "shoal.h").exists():
            return folder / "shoal.h"
    raise CompileError(f"shoal.h is neither beside {HERE} nor in a source tree around it")


def file_name() -> str:
    """Name of the compiled binding for this torch, this Python and these sources."""
    import torch

    digest = hashlib.sha256()
    sources = [*HERE.glob("*.cpp"), *HERE.glob("*.h"), header()]
    for source in sorted(sources, key=lambda path: path.name):
        digest.update(source.read_bytes())
    digest.update(" ".join(flags()).encode())
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{MODULE}-{torch.__version__}-{python}-{digest.hexdigest()[:16]}.so"


def flags() -> list[str]:
    """Compiler flags apart from paths."""
    import torch

    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return ["-O2", "-std=c++20", "-fPIC", "-shared", "-w", "-fvisibility=hidden"] + [
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
    ]


def command(output: Path) -> list[str]:
    """The compiler call that makes `output`."""
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include"), str(header().parent)]
    libraries = cpp_extension.library_paths()
    return [
        os.environ.get("CXX", "c++"),
        *flags(),
        *(option for folder in includes for option in ("-isystem", folder)),
        str(HERE / "backend.cpp"),
        *(f"-L{folder}" for folder in libraries),
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        *("-o", str(output)),
    ]


def compile_to(path: Path) -> None:
    """Compiles the binding to `path`, which appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        call = command(Path(temporary))
        try:
            done = subprocess.run(
                call,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMPILE_SECONDS_MAX,
                check=False,
            )
        except FileNotFoundError:
            raise CompileError(
                f"the PyTorch binding needs a C++ compiler, and there is no {call[0]!r}; install "
                "one (Debian: g++) or name one in the environment variable CXX"
            ) from None
        except subprocess.TimeoutExpired:
            raise CompileError(
                f"compiling the PyTorch binding took over {COMPILE_SECONDS_MAX} s: {call}"
            ) from None
        if done.returncode != 0:
            raise CompileError(
                f"the PyTorch binding could not be compiled (status {done.returncode}):\n"
                f"{' '.join(call)}\n{done.stdout.decode(errors='replace')}"
            )
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time compiles into `folder`; the lock ends with its holder."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(
                "shoal: waiting for the process that compiles the PyTorch binding",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path:
    """~/.cache/shoal, or where XDG_CACHE_HOME says."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "shoal"


def binding(library: Path) -> Path:
    """The compiled binding: the one that was built with `library`, or the cache's, made now if
    need be."""
    name = file_name()
    for folder in (HERE, library.parent / "torch"):
        if (folder / name).exists():
            return folder / name
    folder = cache_folder()
    path = folder / name
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if not path.exists():
                print(
                    "shoal: compiling the PyTorch binding, once for this version of torch "
                    f"(half a minute to two), into {folder}",
                    file=sys.stderr,
                    flush=True,
                )
                compile_to(path)
    except OSError as error:
        raise CompileError(
            f"the PyTorch binding can't be kept in {folder}: {error}; name another "
            "place in the environment variable XDG_CACHE_HOME"
        ) from error
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for the compiled binding"
    )
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    path = output / file_name()
    if not path.exists():
        compile_to(path)
    for other in output.glob(f"{MODULE}-*.so"):
        if other != path:
            other.unlink()
    path.touch()


if __name__ == "__main__":
    main()
