# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several test files use."""

from launching import agent, launch

__all__ = ["agent", "launch"]
