# SPDX-License-Identifier: Apache-2.0
"""The model parallel library's names. Importing this package loads no framework.

__version__ is the release of the closed library whose names are here, for scripts that compare it;
the version of this distribution is Shoal's.
"""

__version__ = "1.15.0"
