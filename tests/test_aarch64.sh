#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The library on 64-bit ARM, on a machine of another kind: all of it compiles without warnings, the
# kernels' tests pass under an emulator, and emulated ranks make one group, alone and with ranks of
# this machine. Debian's cross compiler, QEMU and libraries for ARM come with `tools/setup test`.

set -u
cd "${SHOAL_SOURCE:?}" || exit 2
build=${SHOAL_BUILD:?}/aarch64
emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)

skip() {
    echo "skipped: $*"
    exit 77
}

# need WHAT PROBE...
need() {
    local what=$1
    shift
    "$@" >/dev/null 2>&1 || skip "no $what here (tools/setup test says why)"
}

build_for_arm() {
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHOAL_WERROR=ON \
        -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake >/dev/null || exit 1
    local tests=(src/kernel/*_test.c) names=()
    for test in "${tests[@]}"; do
        names+=("kernel_$(basename "$test" .c)")
    done
    cmake --build "$build" -- --quiet shoal shoal_shared example_allreduce "${names[@]}" || exit 1
}

# Shows what each program says, but only once it has ended.
run_kernel_tests() {
    local program status=0 names=() running=()
    for program in "$build"/tests/kernel_*_test; do
        names+=("$program")
        "${emulator[@]}" "$program" >"$program.log" 2>&1 &
        running+=($!)
    done
    for program in "${!running[@]}"; do
        wait "${running[$program]}" || status=1
        cat "${names[$program]}.log"
    done
    return $status
}

# sums RANKS EXPECTED [NATIVE]: every rank of an allreduce prints the same sums; the last rank is a
# program of this machine if that is given.
sums() {
    local ranks=$1 expected=$2 native=${3:-} said
    # shellcheck disable=SC2016
    local program='if [ "$SHOAL_RANK" = "$0" ]; then exec "$1"; else shift; exec "$@"; fi'
    said=$(SHOAL_TIMEOUT_MS=60000 "$SHOAL_BUILD/shoal" run --no-tag -n "$ranks" -- \
        sh -c "$program" "${native:+$((ranks - 1))}" "$native" \
        "${emulator[@]}" "$build/examples/allreduce") || return 1
    if [ "$(sort -u <<<"$said")" != "$expected" ] || [ "$(wc -l <<<"$said")" -ne "$ranks" ]; then
        printf '%s ranks: expected %s from each, got:\n%s\n' "$ranks" "$expected" "$said"
        return 1
    fi
}

[ "$(uname -m)" != aarch64 ] || skip 'this is such a machine: the other tests run its code'
[ -z "${SHOAL_SANITIZE:-}" ] || skip 'sanitizers do not run under the emulator'
need 'cross compiler' command -v aarch64-linux-gnu-gcc
need 'emulator' command -v qemu-aarch64
need 'C library for ARM' test -e /usr/aarch64-linux-gnu/include/stdio.h
need 'libraries for ARM' test -e .sysroot-aarch64/usr/lib/aarch64-linux-gnu/libcmocka.so

build_for_arm
status=0
run_kernel_tests || status=1
sums 2 '2 4 6 1' || status=1
sums 4 '4 8 12 6' || status=1
sums 3 '3 6 9 3' "$SHOAL_BUILD/examples/allreduce" || status=1
exit $status
