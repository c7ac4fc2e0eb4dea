/* SPDX-License-Identifier: Apache-2.0 */
/* file.h: whole writes to files. */
#ifndef SHOAL_BASE_FILE_H
#define SHOAL_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Writes the bytes at `start`, going on after signals and short writes. Returns how many were
 * written; fewer than `bytes` is an error, and errno says which. Any thread. */
size_t base_file_write(int fd, const void *data, size_t bytes, int64_t start);

#endif
