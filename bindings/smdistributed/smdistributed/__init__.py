# SPDX-License-Identifier: Apache-2.0
"""The names of SageMaker's distributed libraries, carried out by Shoal: docs/smdistributed.md."""
