#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The house rules hold: rooms include only downward and name what they share after themselves, the
# shared library shows what shoal.h declares, and every file keeps to the style.

set -u
cd "${SHOAL_SOURCE:?}" || exit 2

if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    echo "no git work tree here, so it is not known which files belong to the project"
    exit 77
fi

status=0
tools/check-style || status=1
# Sanitizers add symbols of their own.
if [ -n "${SHOAL_SANITIZE:-}" ]; then
    tools/check-layers || status=1
else
    tools/check-layers "${SHOAL_BUILD:?}" || status=1
    tools/check-symbols "$SHOAL_BUILD" || status=1
fi
exit $status
