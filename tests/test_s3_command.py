# SPDX-License-Identifier: Apache-2.0
"""`shoal s3` against our own service, and against another implementation of S3 (moto)."""

import fcntl
import filecmp
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
from launching import DEADLINE_S, SHOAL
from services import Service, needs_service

pytestmark = needs_service
MIB = 1 << 20


class Place:
    """A service to speak to: its arguments and variables."""

    def __init__(self, arguments, **variables):
        self.arguments = arguments
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment = plain | variables

    def run(self, *words, **options):
        return subprocess.run(
            [SHOAL, "s3", *map(str, words), *self.arguments],
            capture_output=True, timeout=DEADLINE_S, env=self.environment, **options,
        )

    def ok(self, *words, **options):
        out = self.run(*words, **options)
        assert out.returncode == 0, out.stderr
        assert out.stderr == b""  # no bar in a pipe
        return out.stdout

    def keys(self, bucket):
        entries = json.loads(self.ok("ls", f"s3://{bucket}", "--recursive", "--json"))["entries"]
        return [entry["key"] for entry in entries]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("service"))
    yield Place(["--dir", service.folder])
    assert service.stop() == (0, "")


@pytest.fixture(scope="module")
def foreign():
    server = pytest.importorskip("moto.server", reason="moto is not installed (tools/setup test)")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield Place(
        [], AWS_ENDPOINT_URL=f"http://{host}:{port}", AWS_ACCESS_KEY_ID="AKIAEXAMPLE",
        AWS_SECRET_ACCESS_KEY="invented",
    )
    running.stop()


@pytest.fixture(params=["own", "foreign"])
def place(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def bucket(place, request):
    name = "bkt-" + re.sub("[^a-z]+", "-", request.node.name)[5:50].strip("-")
    assert place.ok("mb", f"s3://{name}") == f"make_bucket: {name}\n".encode()
    return name


@pytest.fixture
def folder(tmp_path):
    """A few files, one of them of three parts."""
    root = tmp_path / "from"
    (root / "a").mkdir(parents=True)
    (root / "a.txt").write_text("before a/")
    (root / "a" / "é +&").write_text("odd")
    (root / "a" / "empty").touch()
    (root / "large").write_bytes(random.Random(1).randbytes(11 * MIB))
    return root


def same(left, right):
    """Whether two folders have the same files."""
    names = [sorted(p.relative_to(r) for p in r.rglob("*") if p.is_file()) for r in (left, right)]
    return names[0] == names[1] and all(
        filecmp.cmp(left / name, right / name, shallow=False) for name in names[0]
    )


def test_folders_go_and_come(place, bucket, folder, tmp_path):
    there = f"s3://{bucket}/deep/er"
    out = place.ok("cp", folder, there, "--recursive", "--part-size", "5M").decode()
    assert f"upload: {folder}/a.txt to {there}/a.txt\n" in out
    assert place.keys(bucket) == [
        f"deep/er/{name}" for name in ("a.txt", "a/empty", "a/é +&", "large")
    ]
    listed = place.ok("ls", f"s3://{bucket}/deep/").decode().split()
    assert listed == ["PRE", "er/"]
    place.ok("sync", there, tmp_path / "to", "--part-size", "5M")
    assert same(folder, tmp_path / "to")
    assert place.ok("sync", there, tmp_path / "to") == b""  # by the times
    assert place.ok("sync", folder, there, "--size-only") == b""
    place.ok("cp", there, f"s3://{bucket}/again", "--recursive", "--quiet")
    place.ok("cp", f"s3://{bucket}/again/", tmp_path / "copied", "--recursive")
    assert same(folder, tmp_path / "copied")
    place.ok("rm", f"s3://{bucket}/deep", "--recursive")
    assert [key.split("/")[0] for key in place.keys(bucket)] == ["again"] * 4
    place.ok("rb", f"s3://{bucket}", "--force")
    assert bucket not in place.ok("ls").decode()


def test_sync_makes_the_target_like_the_source(place, bucket, folder):
    there = f"s3://{bucket}"
    place.ok("sync", folder, there)
    (folder / "a.txt").write_text("another length")
    (folder / "a" / "empty").unlink()
    (folder / "b").write_text("new")
    dry = place.ok("sync", folder, there, "--delete", "--dryrun").decode()
    assert dry.count("(dry run) upload") == 2 and dry.count("(dry run) delete") == 1
    assert place.keys(bucket) == ["a.txt", "a/empty", "a/é +&", "large"]
    place.ok("sync", folder, there)
    assert place.keys(bucket) == ["a.txt", "a/empty", "a/é +&", "b", "large"]
    place.ok("sync", folder, there, "--delete")
    assert place.keys(bucket) == ["a.txt", "a/é +&", "b", "large"]
    old = time.time() + 5  # newer than what is there, with the same length
    (folder / "b").write_text("NEW")
    os.utime(folder / "b", (old, old))
    assert b"upload" in place.ok("sync", folder, there)
    assert place.ok("cp", f"{there}/b", "-") == b"NEW"


def test_one_file_and_streams(place, bucket, folder, tmp_path):
    place.ok("cp", folder / "a.txt", f"s3://{bucket}")
    place.ok("cp", folder / "a.txt", f"s3://{bucket}/x/")
    place.ok("cp", folder / "a.txt", f"s3://{bucket}/name")
    assert place.keys(bucket) == ["a.txt", "name", "x/a.txt"]
    place.ok("cp", f"s3://{bucket}/name", tmp_path)
    assert (tmp_path / "name").read_text() == "before a/"
    (tmp_path / "name").write_text("older")
    place.ok("cp", f"s3://{bucket}/x/a.txt", tmp_path / "name")
    assert (tmp_path / "name").read_text() == "before a/"
    for body in (b"", b"short", random.Random(2).randbytes(6 * MIB)):
        place.ok("cp", "-", f"s3://{bucket}/stream", "--part-size", "5M", input=body)
        assert place.ok("cp", f"s3://{bucket}/stream", "-") == body


def test_patterns_and_json(place, bucket, folder):
    words = ("cp", folder, f"s3://{bucket}", "--recursive", "--json")
    out = json.loads(place.ok(*words, "--exclude", "*", "--include", "a*", "--exclude", "*/e*"))
    assert sorted(row["to"] for row in out["files"]) == [
        f"s3://{bucket}/a.txt", f"s3://{bucket}/a/é +&"
    ]
    assert (out["done"], out["failed"], out["bytes"]) == (2, 0, 12)
    assert {row["did"] for row in out["files"]} == {"upload"}
    entries = json.loads(place.ok("ls", f"s3://{bucket}", "--json"))["entries"]
    assert [list(entry)[0] for entry in entries] == ["key", "prefix"]
    assert entries[0]["bytes"] == 9 and len(entries[0]["etag"]) == 32
    buckets = json.loads(place.ok("ls", "--json"))["buckets"]
    assert bucket in [each["name"] for each in buckets]


def fails(place, status, text, *words):
    out = place.run(*words)
    assert out.returncode == status, out
    assert re.search(text, out.stderr.decode()), out.stderr
    return out.stdout


def test_what_goes_wrong_is_named(place, bucket, folder, tmp_path):
    there = f"s3://{bucket}"
    fails(place, 1, "NoSuchBucket", "ls", "s3://nobody-has-this")
    fails(place, 1, "NoSuchBucket|404", "cp", folder / "a.txt", "s3://nobody-has-this/k")
    fails(place, 1, "404", "cp", f"{there}/none", tmp_path)
    assert fails(place, 1, "^$", "ls", f"{there}/none") == b""
    fails(place, 2, "--recursive takes all of it", "cp", folder, there)
    fails(place, 2, "neither .* begins with s3://", "cp", folder, tmp_path)
    fails(place, 2, "did you mean sync", "sinc", folder, there)
    fails(place, 2, "one word too many", "rm", there, there)
    fails(place, 2, "usage: shoal s3 cp FROM TO", "cp", there)
    fails(place, 2, "--json would stand among", "cp", f"{there}/k", "-", "--json")
    fails(place, 2, "takes 5M to 5G", "cp", folder, there, "--part-size", "1M")
    place.ok("cp", folder / "a.txt", f"{there}/dir/../../escape")
    place.ok("cp", folder / "a.txt", f"{there}/dir/good")
    out = fails(
        place, 1, "1 file was not done", "cp", f"{there}/dir", tmp_path / "to", "--recursive"
    )
    assert b"good" in out
    assert [path.name for path in tmp_path.rglob("*escape*")] == []
    fails(place, 1, "BucketNotEmpty", "rb", there)


def test_links(own, folder, tmp_path):
    own.ok("mb", "s3://links")
    (folder / "link").symlink_to(folder / "a.txt")
    (folder / "nowhere").symlink_to("/nonexistent")
    own.ok("sync", folder, "s3://links", "--no-follow-symlinks")
    assert "link" not in own.keys("links")
    own.ok("sync", folder, "s3://links")
    assert "link" in own.keys("links") and "nowhere" not in own.keys("links")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "a").symlink_to(tmp_path)
    fails(own, 1, "a file or a link is where", "sync", "s3://links", tmp_path / "to", "--size-only")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "to"]


def test_a_service_that_is_not_there(tmp_path):
    nowhere = Place(["--endpoint", "http://127.0.0.1:9"], HOME=str(tmp_path))
    fails(nowhere, 1, r"cannot reach http://127.0.0.1:9 \(--endpoint\)", "ls")
    unknown = Place([], HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path))
    fails(unknown, 1, "start `shoal serve`, or say where one is", "ls")


@pytest.mark.parametrize("columns", [0, 40])
def test_a_terminal_shows_a_bar(own, folder, columns):
    """Of the terminal's width, where that is known: a longer one can't be taken away."""
    own.ok("mb", f"s3://bar-{columns}")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [SHOAL, "s3", "cp", folder / "large", f"s3://bar-{columns}", *own.arguments],
        stdout=subprocess.PIPE, stderr=slave, env=own.environment,
    )
    os.close(slave)
    assert b"upload: " in process.communicate(timeout=DEADLINE_S)[0]
    shown = os.read(master, 65536).decode()
    os.close(master)
    bar = r"\r(\[=*\.*\] +\d+ %  .*?" + ("" if columns else " of 11.* MiB  .*/s  0 of 1 files")
    found = re.search(bar + r")\x1b", shown)
    assert found and (not columns or len(found[1]) == columns - 1), shown
    assert shown.endswith("\r\x1b[K")  # and takes it away


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    service = Service(tmp_path / "service")
    own = Place(["--dir", service.folder])
    own.ok("mb", "s3://stop")
    process = subprocess.Popen(
        [SHOAL, "s3", "cp", "-", "s3://stop/k", "--part-size", "5M", *own.arguments],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=own.environment,
    )
    process.stdin.write(bytes(21 * MIB))
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    process.stdin.close()
    err = process.stderr.read()
    assert process.wait(timeout=DEADLINE_S) == 1, err
    assert b"cancelled" in err
    assert own.keys("stop") == []
    own.ok("rb", "s3://stop")
    assert service.stop() == (0, "")
