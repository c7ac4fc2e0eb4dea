# SPDX-License-Identifier: Apache-2.0
"""Ports for tests that start servers or launchers of their own."""

import socket


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
