# SPDX-License-Identifier: Apache-2.0
"""The data parallel library for PyTorch: torch_smddp is the backend, distributed and parallel are
the older API."""
