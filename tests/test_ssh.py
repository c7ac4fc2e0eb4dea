# SPDX-License-Identifier: Apache-2.0
"""`shoal run` through ssh: two virtual hosts with an sshd each, reached from a third, the head.

All files of ssh and sshd lie in a folder of the test's own: in the virtual hosts root has another
home. Nothing of the machine's own ssh is read or changed.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launching import DEADLINE_S, SHOAL, Terminal, needs_shoal, wait_until

SSHD = Path("/usr/sbin/sshd")
PORT = 2222
NAMES = ["vh0", "vh1"]
NOBODY = "10.77.1.250"  # an address in the hosts' network that no host has
TWO_EACH = ["--hosts", "vh0:2,vh1:2"]

pytestmark = [
    needs_shoal,
    pytest.mark.skipif(os.geteuid() != 0, reason="virtual hosts need root"),
    pytest.mark.skipif(
        not (SSHD.exists() and shutil.which("ssh")), reason="needs Debian's openssh-server"
    ),
]


# ---- the hosts -------------------------------------------------------------------------------


def make_key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


class Files:
    """Keys and configurations; `home` is root's in all hosts."""

    def __init__(self, folder):
        self.folder = folder
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        (folder / "authorized_keys").write_text(make_key(self.home / ".ssh" / "id_ed25519"))
        key = make_key(folder / "host_key")
        (self.home / ".ssh" / "known_hosts").write_text(f"[vh0]:{PORT},[vh1]:{PORT} {key}\n")
        (self.home / ".ssh" / "config").write_text(
            f"Host vh*\nPort {PORT}\nHost nobody\nHostName {NOBODY}\n"
        )
        self.other_key = make_key(folder / "other_key")
        (folder / "sshd_config").write_text(
            f"Port {PORT}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPidFile none\n"
        )
        self.make_accounts({"root": "/bin/bash", "closed": "/usr/sbin/nologin"})

    def make_accounts(self, shells):
        """root's home is in this folder, and logins by key are open to all of `shells`."""
        others = re.sub("^root:.*\n", "", Path("/etc/passwd").read_text(), flags=re.MULTILINE)
        own = [f"{name}:x:0:0::{self.home}:{shell}\n" for name, shell in shells.items()]
        (self.folder / "passwd").write_text("".join([*own, others]))
        (self.folder / "shadow").write_text("".join(f"{name}:*:1:0:::::\n" for name in shells))

    def config(self, name, *lines):
        """The template of an agent that reads another configuration first."""
        path = self.folder / f"config_{name}"
        path.write_text("\n".join([*lines, (self.home / ".ssh" / "config").read_text()]))
        return f"ssh -F {path} {{host}}"

    def furnish(self):
        """Shell commands that give a virtual host its own root."""
        return " && ".join(
            f"mount --bind {self.folder}/{name} /etc/{name}" for name in ("passwd", "shadow")
        )


class Hosts:
    """The virtual hosts; programs run in them and in the head, and are looked for in them."""

    def __init__(self, files):
        self.servers = []
        self.owner = subprocess.Popen(
            [SHOAL, "vhosts", "-n", str(len(NAMES)), "--rate", "none", "--"]
            + ["sh", "-c", 'echo "$SHOAL_VHOSTS_PIDS"; exec cat >&2'],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pids = self.owner.stdout.readline().strip()
        if not self.pids:
            reason = self.owner.communicate(timeout=DEADLINE_S)[1].strip()
            pytest.skip(f"virtual hosts cannot be made here: {reason}")
        self.run(None, "sh", "-c", files.furnish())
        for name in NAMES:
            self.start_server(name, files)
        self.spaces = {
            name: self.run(name, "readlink", "/proc/self/ns/pid").strip() for name in [None, *NAMES]
        }
        self.idle = {}
        self.idle = self.left()

    def enter(self, name, folder="/"):
        """Words in front of a command that runs it in a host, or in the head for None."""
        children = Path(f"/proc/{self.owner.pid}/task/{self.owner.pid}/children").read_text()
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.split()}
        head = next(pid for pid, command in commands.items() if b"cat" in command)
        words = ["nsenter", "-t", head, "-m", "-u", "-i", "-n", "-p", "--"]
        words += ["env", "-C", folder, f"SHOAL_VHOSTS_PIDS={self.pids}"]
        return words if name is None else [*words, SHOAL, "vhosts-exec", name, "--"]

    def run(self, name, *command):
        done = subprocess.run(
            [*self.enter(name), *command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def start_server(self, name, files):
        script = (
            f"{files.furnish()} && mount -t tmpfs none /run && mkdir -m 755 /run/sshd &&"
            f" exec {SSHD} -D -e -f {files.folder}/sshd_config"
        )
        log = files.folder / f"{name}.log"
        with log.open("w") as err:
            server = subprocess.Popen([*self.enter(name), "sh", "-c", script], stderr=err)
        self.servers.append(server)
        wait_until(lambda: "listening" in log.read_text() or server.poll(), "sshd")
        assert server.poll() is None, log.read_text()

    def processes(self, name):
        """Numbers and command lines of all processes of a host (None: the head)."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns" / "pid") == self.spaces[name]:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = words.decode(errors="replace")
        return found

    def find(self, name, pattern, count=1):
        """Numbers of the processes of a host whose command line matches, when there are `count`."""

        def found():
            return [pid for pid, words in self.processes(name).items() if re.search(pattern, words)]

        wait_until(lambda: len(found()) == count, f"{count} processes that match {pattern}")
        return found()

    def left(self):
        """Processes of all hosts that were not there at the beginning."""
        everybody = {}
        for name in self.spaces:
            everybody |= self.processes(name)
        return {pid: words for pid, words in everybody.items() if pid not in self.idle}

    def expect_idle(self):
        left = {}

        def idle():
            left.clear()
            left.update(self.left())
            return not left

        with contextlib.suppress(AssertionError):
            wait_until(idle, "end of the job's processes")
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        assert left == {}

    def close(self):
        for server in self.servers:
            server.terminate()
        self.owner.communicate(timeout=DEADLINE_S)
        for server in self.servers:
            server.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("ssh"))


@pytest.fixture(scope="module")
def hosts(files):
    it = Hosts(files)
    yield it
    it.close()


@pytest.fixture
def job(launch, hosts):
    """Runs `shoal run` in the head, and sees that it leaves nothing behind on any host."""
    launch.before = hosts.enter(None, launch.folder)
    yield launch
    hosts.expect_idle()


def launcher(hosts):
    """The number of the `shoal run` that runs in the head."""
    return hosts.find(None, r"^\S*shoal run ")[0]


# ---- ranks run -------------------------------------------------------------------------------

ALLREDUCE = SHOAL.parent / "examples" / "allreduce"
needs_example = pytest.mark.skipif(not ALLREDUCE.exists(), reason=f"{ALLREDUCE} is not built")
SUMS = [f"[{rank}] 4 8 12 6" for rank in range(4)]


@needs_example
def test_ranks_on_two_hosts_make_a_group(job):
    code, out, err = job.run(*TWO_EACH, ALLREDUCE)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == SUMS


@needs_example
def test_ranks_of_the_own_host_and_another_make_a_group(job, hosts):
    job.before = hosts.enter("vh0", job.folder)
    code, out, err = job.run(*TWO_EACH, ALLREDUCE)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == SUMS


@needs_example
def test_a_shared_connection_that_stays_does_not_hold_the_job(job, files, hosts):
    agent = files.config(
        "shared", "ControlMaster auto", "ControlPersist 600", f"ControlPath {files.folder}/%h"
    )
    for _ in range(2):
        code, out, err = job.run(*TWO_EACH, "--agent", agent, ALLREDUCE)
        assert (code, err) == (0, "")
        assert sorted(out.splitlines()) == SUMS
    for pid in hosts.find(None, r"^ssh: .*\[mux\]", 2):
        os.kill(pid, signal.SIGKILL)


ARGUMENTS = ["two words", "it's", '"', "$HOME", "`id`", "a\\b", "*", "", "~", ";", "a\nb", "ä"]


def test_arguments_and_directories_arrive_unchanged(job):
    program = job.python("import json\nprint(json.dumps([os.getcwd(), *sys.argv[1:]]))")
    folder = job.folder / "it's a $HOME"
    folder.mkdir()
    code, out, err = job.run(
        *("--hosts", "vh0,root@vh1", "--no-tag", "--wdir", folder), *program, *ARGUMENTS
    )
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [[str(folder), *ARGUMENTS]] * 2


def test_a_path_of_shoal_with_blanks_and_quotes(job):
    path = job.folder / "it's a $HOME" / "shoal"
    path.parent.mkdir()
    shutil.copy(SHOAL, path)
    code, out, err = job.run("--hosts", "vh0,vh1", "--remote-shoal", path, "echo", "hello")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0] hello", "[1] hello"]


def test_the_environment_arrives_and_stands_in_no_list_of_processes(job, files, hosts):
    job.environment["MY_TOKEN"] = "token of mine"
    program = job.python(
        "e = os.environ\n"
        "print(e['SHOAL_SECRET'], e['HOME'], e['MY_TOKEN'], flush=True)\n"
        "while not os.path.exists('seen'): time.sleep(0.02)"
    )
    process = job.start(*TWO_EACH, "--no-tag", *program)
    lines = {process.stdout.readline().decode() for _ in range(4)}
    assert len(lines) == 1
    secret, home, token = lines.pop().strip().split(" ", 2)
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert (home, token) == (str(files.home), "token of mine")
    lists = {name: hosts.run(name, "ps", "-eww", "-o", "args") for name in [None, *NAMES]}
    assert "ssh vh0" in lists[None]
    for name, text in lists.items():
        assert ("run-agent" if name is None else "program0.py") in text
        assert secret not in text
        assert token not in text
    (job.folder / "seen").touch()
    assert job.finish(process) == (0, "", "")


def test_input_and_output_pass_unchanged(job):
    data = b"".join(b"%d \x00\xff~.\r\n" % i for i in range(50000))
    process = job.start("--hosts", "vh1", "--no-tag", "cat", stdin=subprocess.PIPE)
    out, err = process.communicate(data, timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, b"")
    assert out == data


# ---- jobs end --------------------------------------------------------------------------------

WITH_A_DAEMON = """
import subprocess
subprocess.Popen(['sleep', '600'], start_new_session=True)
print('ready', flush=True)
time.sleep(600)
"""


def start_ready(job):
    process = job.start(*TWO_EACH, "--grace", 1, *job.python(WITH_A_DAEMON))
    assert sum(b"ready" in process.stdout.readline() for _ in range(4)) == 4
    return process


def test_a_killed_rank_ends_the_others(job, hosts):
    process = start_ready(job)
    os.kill(hosts.find("vh1", "program0.py", 2)[0], signal.SIGKILL)
    code, _, err = job.finish(process)
    assert code == 137
    assert re.search(
        r"rank [23] on host vh1 \(pid \d+\) was killed by SIGKILL", err.splitlines()[-1]
    )
    hosts.expect_idle()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all_ranks(job, hosts, number):
    process = start_ready(job)
    os.kill(launcher(hosts), number)
    code, _, err = job.finish(process)
    assert code == 128 + number
    assert re.search(r"rank \d on host vh[01] \(pid \d+\)", err.splitlines()[-1])
    hosts.expect_idle()


def test_a_killed_launcher_ends_all_ranks(job, hosts):
    process = start_ready(job)
    os.kill(launcher(hosts), signal.SIGKILL)
    process.wait(DEADLINE_S)
    hosts.expect_idle()


def test_a_lost_connection_ends_all_ranks(job, hosts):
    process = start_ready(job)
    os.kill(hosts.find("vh1", r"^sshd: root@notty")[0], signal.SIGKILL)
    code, _, err = job.finish(process)
    assert code == 125
    assert re.search(
        r"the agent on host vh1 \(ranks 2 to 3\) is lost: `ssh vh1 .*` exited with code 255: "
        r"(Connection|client_loop)",
        err.splitlines()[-1],
    )
    hosts.expect_idle()


# ---- hosts that cannot be used -----------------------------------------------------------------


def expect_refusal(job, arguments, host, words, how="exited with code 255: .*"):
    start = time.monotonic()
    code, out, err = job.run("--start-timeout", 30, *arguments, "echo", "started")
    assert (code, out) == (125, "")
    assert re.search(
        rf"^shoal: host {host} cannot be used: `ssh .*` {how}{words}", err.splitlines()[-1]
    )
    assert time.monotonic() - start < 30


def test_a_host_that_nobody_has(job):
    words = rf"connect to host {NOBODY} port 22: No route to host"
    expect_refusal(job, ["--hosts", "vh0,nobody"], "nobody", words)


def test_a_host_without_a_server(job, files):
    agent = files.config("no_server", "Host vh1", "Port 2223")
    words = "connect to host vh1 port 2223: Connection refused"
    expect_refusal(job, [*TWO_EACH, "--agent", agent], "vh1", words)


def test_a_name_that_does_not_exist(job):
    words = "Could not resolve hostname no-such-host"
    expect_refusal(job, ["--hosts", "vh0,no-such-host"], "no-such-host", words)


def test_a_key_that_is_refused(job, files):
    agent = files.config(
        "refused", "Host vh1", f"IdentityFile {files.folder}/other_key", "IdentitiesOnly yes"
    )
    words = r"root@vh1: Permission denied \(publickey\)"
    expect_refusal(job, [*TWO_EACH, "--agent", agent], "vh1", words)


def test_shoal_is_missing_there(job):
    arguments = [*TWO_EACH, "--remote-shoal", "/no/such/shoal"]
    words = r"is shoal there as /no/such/shoal\?"
    expect_refusal(job, arguments, r"vh\d", words, "exited with code 127: .*")


def test_an_account_without_a_shell(job):
    words = "it printed: This account is currently not available"
    expect_refusal(job, ["--hosts", "vh0,closed@vh1"], "closed@vh1", words, "exited with code 1.*")


def test_a_configuration_that_asks_for_a_terminal(job, files):
    agent = files.config("terminal", "Host vh1", "RequestTTY force")
    words = r"it printed: shoal run-agent: stdin is a terminal.*ssh -T"
    expect_refusal(job, [*TWO_EACH, "--agent", agent], "vh1", words, "exited with code 125.*")


def test_a_configuration_that_takes_stdin_away(job, files):
    agent = files.config("no_stdin", "Host vh1", "StdinNull yes")
    code, out, err = job.run(*TWO_EACH, "--agent", agent, "echo", "started")
    assert (code, out) == (125, "")
    assert "host vh1: stdin ended before the ranks were started" in err.splitlines()[-1]


@pytest.mark.parametrize("known", ["", "[vh1]:2222 {other_key}\n"], ids=["unknown", "changed"])
def test_a_host_key_that_is_not_right(job, files, known):
    path = files.folder / "known_hosts"
    path.write_text(known.format(other_key=files.other_key))
    agent = files.config("host_key", "Host vh1", f"UserKnownHostsFile {path}")
    words = "Host key verification failed"
    expect_refusal(job, [*TWO_EACH, "--agent", agent], "vh1", words)


def test_on_a_terminal_ssh_does_not_ask(job, files):
    agent = files.config("to_ask", "Host *", "UserKnownHostsFile /dev/null")
    terminal = Terminal(job, *TWO_EACH, "--agent", agent, "echo", "started")
    assert terminal.finish() == 125
    assert b"exited with code 255: Host key verification failed" in terminal.text


def test_a_host_that_does_not_answer(job, hosts):
    server = hosts.find("vh1", "sshd.*listener")[0]
    os.kill(server, signal.SIGSTOP)
    try:
        code, out, err = job.run(*TWO_EACH, "--start-timeout", 1.5, "echo", "started")
    finally:
        os.kill(server, signal.SIGCONT)
    assert (code, out) == (125, "")
    assert "no answer from host vh1 within 1.5 s (--start-timeout)" in err.splitlines()[-1]
