# SPDX-License-Identifier: Apache-2.0
"""Modules whose names scripts know."""
