# SPDX-License-Identifier: Apache-2.0
"""The `shoal` command itself: wrong calls, help, info."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from launching import DEADLINE_S, SHOAL, needs_shoal

pytestmark = needs_shoal


# ---- wrong calls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "2", "--hots", "a", "true"], "there is no option --hots; did you mean --hosts?"),
        (["-n", "2", "--timeout-sm", "1", "true"], "did you mean --timeout-ms?"),
        (["-n", "2", "--timeout-ms", "0", "true"], 'SHOAL_TIMEOUT_MS="0" is not allowed'),
        (["-n", "0", "true"], "-n 0: it takes a number from 1"),
        (["-n", "two", "true"], "-n two: it takes a number"),
        (["true"], "how many ranks?"),
        (["-n", "2"], "which program?"),
        (["-n"], "-n needs a value"),
        (["-n", "2", "--env", "NOVALUE", "true"], "'NOVALUE' is not NAME=VALUE"),
        (["-n", "2", "--secret", "x", "true"], "there is no option --secret"),
        (["--hosts", "a:1,b", "-n", "3", "true"], "3 ranks, but the 2 hosts have 2 slots"),
        (["--hosts", "a:0", "true"], "0 slots"),
        (["--hosts", "a,a", "true"], "host 'a' stands there twice"),
        (["--hosts", "fe80::1", "true"], "write an IPv6 address in brackets"),
        (["--hosts", "-oProxyCommand=x", "true"], "is not a host name"),
        (["--hosts", "127.0.1.1,192.0.2.1", "true"], "resolves to a loopback address"),
        (["--hosts", "a", "--agent", "ssh a", "true"], "lacks {host}"),
        (["--hosts", "a", "--agent", "ssh '{host}", "true"], "' is not closed"),
        (["--hosts", "a", "--hostfile", "b", "true"], "the hosts are given twice"),
        (["--hostfile", "/no/such", "true"], "/no/such"),
    ],
)
def test_wrong_calls_are_named(launch, arguments, words):
    code, out, err = launch.run(*arguments)
    assert code in (2, 125)
    assert out == ""
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n# b\nb slots=x\n", "hosts:3: 'x' is not a number of slots"),
        ("a\n\na\n", "hosts:3: host 'a' stands already in line 1"),
        ("a slot=2\n", "hosts:1: 'slot=2' is not understood"),
        ("a slots=0\n", "hosts:1: 0 slots"),
        ("[::1:2\n", "hosts:1: '[::1:2' has no closing bracket"),
        ("# nobody\n", "names no host"),
    ],
)
def test_a_broken_hosts_file_is_named_with_its_line(launch, text, words):
    (launch.folder / "hosts").write_text(text)
    code, _, err = launch.run("--hostfile", "hosts", "true")
    assert code in (2, 125)
    assert words in err


def test_programs_that_cannot_run(launch):
    (launch.folder / "data").write_text("no program")
    (launch.folder / "script").write_text("echo no shebang\n")
    (launch.folder / "script").chmod(0o755)
    host = socket.gethostname()
    code, _, err = launch.run("-n", 2, "no-such-program")
    assert (code, f"host {host}: there is no program no-such-program in PATH" in err) == (127, True)
    code, _, err = launch.run("-n", 2, "./missing")
    assert (code, "missing cannot be executed: No such file or directory" in err) == (127, True)
    code, _, err = launch.run("-n", 2, "./data")
    assert (code, "data cannot be executed: Permission denied" in err) == (126, True)
    code, _, err = launch.run("-n", 2, "/tmp")
    assert (code, "/tmp cannot be executed: Is a directory" in err) == (126, True)
    code, _, err = launch.run("-n", 2, "./script")
    assert (code, "is it a script without a #! line?" in err) == (126, True)


def test_a_port_in_use_is_named(launch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = launch.run("-n", 1, "--store-port", port, "true")
        assert code == 125
        assert str(port) in err
        assert "in use" in err
        code, _, err = launch.run("-n", 1, "--master-port", port, "true")
        assert code == 125
        assert f"port {port}" in err
        assert "in use" in err


# ---- the command itself ----------------------------------------------------------------------


def shoal(*arguments):
    return subprocess.run(
        [SHOAL, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_version_and_help():
    assert re.fullmatch(r"shoal \d+\.\d+\.\d+\n", shoal("--version").stdout)
    assert "usage: shoal COMMAND" in shoal("--help").stdout
    for name in ("run", "info"):
        page = shoal("help", name)
        assert page.returncode == 0
        assert page.stdout == shoal(name, "--help").stdout
        assert f"usage: shoal {name}" in page.stdout
    assert "torchrun sets 1" in shoal("help", "run").stdout


def test_unknown_command():
    result = shoal("rnu")
    assert result.returncode == 2
    assert "did you mean 'run'?" in result.stderr


def test_info():
    text = shoal("info").stdout
    for word in (
        "version",
        "compiler",
        "isa",
        "host identity",
        "cores granted",
        "memory",
        "openssl",
    ):
        assert re.search(rf"^{word} +\S", text, re.MULTILINE), word
    facts = json.loads(shoal("info", "--json").stdout)
    assert facts["version"] == shoal("--version").stdout.split()[1]
    environment = os.environ | {"SHOAL_TIMEOUT_MS": "777", "SHOAL_SECRET": "hush"}
    shown = subprocess.run(
        [SHOAL, "info", "--options"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout
    assert re.search(r"^SHOAL_TIMEOUT_MS +777 +environment +300000$", shown, re.MULTILINE)
    assert "hush" not in shown
    assert re.search(r"^SHOAL_REPRODUCIBLE +0 +default", shown, re.MULTILINE)


def test_info_names_a_variable_with_a_typo():
    result = subprocess.run(
        [SHOAL, "info", "--options"],
        env=os.environ | {"SHOAL_TIMOUT_MS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == 1
    assert "SHOAL_TIMEOUT_MS" in result.stderr


def test_the_page_of_options_is_up_to_date():
    page = Path(__file__).resolve().parent.parent / "docs" / "options.md"
    assert page.read_text() == shoal("info", "--options", "--markdown").stdout, (
        "run tools/make-options-doc"
    )
