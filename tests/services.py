# SPDX-License-Identifier: Apache-2.0
"""Starts `shoal serve` for tests, and sees that it ends cleanly."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from launching import DEADLINE_S, SHOAL

needs_service = pytest.mark.skipif(
    not SHOAL.exists()
    or b"built without" in subprocess.run([SHOAL, "serve", "--help"], capture_output=True).stderr,
    reason=f"{SHOAL} is not built, or without the job service",
)


class Service:
    """A service in a directory of its own, started by the command `before`, if there is one."""

    def __init__(self, folder, *arguments, before=()):
        self.folder = Path(folder)
        self.process = subprocess.Popen(
            [*before, SHOAL, "serve", "--dir", folder, "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.url = self.process.stdout.readline().strip()
        self.is_tls = self.url.startswith("https://")
        assert self.is_tls or self.url.startswith("http://"), self.process.stderr.read()
        if before:  # it may have mounts of its own
            self.folder = Path(f"/proc/{self.process.pid}/root{folder}")
        words = (self.folder / "keys").read_text().splitlines()[1].split()
        self.key, self.secret = words[:2]

    def client(self, service, **config):
        """A boto3 client with this service's keys."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            service, endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=self.key, aws_secret_access_key=self.secret,
            verify=str(self.folder / "tls" / "authority.pem") if self.is_tls else None,
            config=Config(retries={"total_max_attempts": 1}, **config),
        )

    def environment(self, *arguments, **before):
        """The variables of `shoal env`, as a shell reads them that had those of `before`, and
        none of this machine's own about proxies and authorities."""
        words = [str(SHOAL), "env", "--dir", str(self.folder), *arguments]
        own = {
            name: value for name, value in os.environ.items()
            if not name.upper().endswith(("_PROXY", "_CA_BUNDLE"))
        }
        out = subprocess.run(
            ["sh", "-euc", f'eval "$({shlex.join(words)})"; env -0'],
            check=True, capture_output=True, text=True, env=own | before,
        ).stdout
        return dict(line.split("=", 1) for line in out.split("\0") if "=" in line)

    def stop(self, signal_number=signal.SIGTERM):
        """Ends it; its exit status and what it said on stderr."""
        self.process.send_signal(signal_number)
        _, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, err


@pytest.fixture
def service(tmp_path):
    it = Service(tmp_path / "service")
    yield it
    if it.process.poll() is None:
        assert it.stop() == (0, "")


def serve_fails(*arguments, **options):
    """What `shoal serve` says when it can't start: its exit status and stderr."""
    out = subprocess.run(
        [SHOAL, "serve", *map(str, arguments)],
        capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | options,
    )
    assert out.stdout == ""
    return out.returncode, out.stderr
