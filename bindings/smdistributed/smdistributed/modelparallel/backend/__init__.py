# SPDX-License-Identifier: Apache-2.0
"""What needs no framework."""
