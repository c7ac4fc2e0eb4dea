# SPDX-License-Identifier: Apache-2.0
#
# For CMAKE_TOOLCHAIN_FILE: builds for 64-bit ARM with Debian's cross compiler and runs the tests
# under QEMU's emulation of user programs, which is how the ARM code is tested on other machines.
# Libraries come from .sysroot-aarch64 at the root, which `tools/setup test` fills.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

get_filename_component(sysroot "${CMAKE_CURRENT_LIST_DIR}/../.sysroot-aarch64" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH "${sysroot}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${sysroot}")
set(ENV{PKG_CONFIG_LIBDIR} "${sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig")

# Debian keeps what differs between processors beside the other headers, where no .pc file looks.
set(CMAKE_C_FLAGS_INIT "-isystem ${sysroot}/usr/include/aarch64-linux-gnu")
