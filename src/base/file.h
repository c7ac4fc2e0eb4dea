/* SPDX-License-Identifier: Apache-2.0 */
/* file.h: whole writes to files, and room for them. */
#ifndef SHOAL_BASE_FILE_H
#define SHOAL_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the bytes at `start`, going on after signals and short writes. Returns how many were
 * written; fewer than `bytes` is an error, and errno says which. Any thread. */
size_t base_file_write(int fd, const void *data, size_t bytes, int64_t start);

/* Keeps room on the disk for what must be written even when it is full: a file of that many bytes.
 * Nothing happens where it is already there, or there is no room. May block; any thread. */
void base_file_reserve(const char *path, int64_t bytes);
/* Lets that room go, for the writing that failed. Whether there was any; of several threads one has
 * it. */
bool base_file_reserve_use(const char *path);

#endif
