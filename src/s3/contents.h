/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contents.h: the files of objects and parts.
 *
 * A file's name is its number in hexadecimal, in a folder for each 4,096 of them. Numbers only
 * grow, so what a killed process may have left is in the folders from the last settled number on.
 */
#ifndef SHOAL_S3_CONTENTS_H
#define SHOAL_S3_CONTENTS_H

#include <stdint.h>

#include "s3/code.h"
#include "s3/writer.h"

struct s3_store;

/* A new file for writing and reading, only the owner's until s3_content_seal. STORAGE_FULL. */
enum s3_code s3_content_create(struct s3_store *store, int64_t *id, int *fd);
/* Room for so many bytes from `start` on, where the file system can take it: STORAGE_FULL now
 * rather than in the middle. */
enum s3_code s3_content_reserve(int fd, int64_t start, int64_t bytes);
/* All of it, at `start`. STORAGE_FULL. */
enum s3_code s3_content_write(int fd, const void *data, size_t bytes, int64_t start);
/* Bytes between files, within the kernel where it can. Blocks. */
enum s3_code s3_content_copy(int from, int64_t from_start, int to, int64_t to_start, int64_t bytes);
/* Read-only from now on, and on the disk. Blocks. */
enum s3_code s3_content_seal(int fd);
/* fd -1 and S3_OK where it is not there (any more). */
enum s3_code s3_content_open(struct s3_store *store, int64_t id, bool for_writing, int *fd);
/* Of a file that no row names. */
void s3_content_unlink(struct s3_store *store, int64_t id);

/* In a transaction: one row more or less refers to the file. One that none refers to any more goes
 * when the transaction is committed, and can't be held again (OPERATION_ABORTED). */
enum s3_code s3_content_add(struct s3_writer *writer, int64_t id);
enum s3_code s3_content_hold(struct s3_writer *writer, int64_t id);
enum s3_code s3_content_drop(struct s3_writer *writer, int64_t id);
/* After a transaction: has the files removed that it left without a row. */
void s3_contents_sweep(struct s3_writer *writer);

/* When a store is opened and nothing is under way: removes all files without rows, and rows of
 * files that none refers to. */
enum s3_code s3_contents_recover(struct s3_store *store);

#endif
