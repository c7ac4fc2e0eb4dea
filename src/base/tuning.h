/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuning.h: thresholds of the same-host path as `shoal tune` measured them, and the file in the
 * user's cache that keeps them for one machine: a model of processor and a number of cores.
 *
 * The file is lines of text, a row for each number of ranks that was measured:
 *
 *     shoal-tune 1
 *     cpu Intel(R) Xeon(R) Processor @ 2.60GHz
 *     cores 2
 *     ranks 2 symmetric 16K block 512K stream 2M direct 16K
 *     end
 *
 * Lines that begin with '#' say something to people. Whatever else is not understood makes the
 * whole file worthless; `end` tells a whole file from a part of one.
 */
#ifndef SHOAL_BASE_TUNING_H
#define SHOAL_BASE_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define BASE_TUNING_ROWS_MAX   8
#define BASE_TUNING_RANKS_MAX  256
#define BASE_TUNING_PATH_BYTES 1024
#define BASE_TUNING_ROW_BYTES  160

/* Of groups of so many ranks, all on one host. */
struct base_tuning {
    int64_t ranks;
    uint64_t symmetric_bytes; /* sums up to here are made whole by every rank */
    uint64_t block_bytes;     /* of a stage */
    uint64_t stream_bytes;    /* outputs from here on are stored around the caches */
    uint64_t direct_bytes;    /* shared buffers above this are used where they lie */
};

struct base_tuning_table {
    int64_t count;
    struct base_tuning rows[BASE_TUNING_ROWS_MAX]; /* by ranks, ascending */
};

struct base_machine {
    char cpu[128];
    int cores; /* online, cut by the cgroups' quotas; affinity does not count */
};
void base_machine_read(struct base_machine *out);

/* What holds for a number of ranks that was not measured. */
struct base_tuning base_tuning_default(int ranks);
/* The row for so many ranks; NULL: there is none. */
const struct base_tuning *base_tuning_find(const struct base_tuning_table *table, int ranks);
/* Puts a row in its place, or in that of the one for as many ranks. LIMIT. */
enum shoal_status base_tuning_put(struct base_tuning_table *table, const struct base_tuning *row);

/* A row as it stands in the file, without a newline. */
void base_tuning_row_text(const struct base_tuning *row, char text[BASE_TUNING_ROW_BYTES]);
/* FORMAT says what is wrong. */
enum shoal_status base_tuning_row_read(const char *text, struct base_tuning *out);

/* Where this machine's file is: in XDG_CACHE_HOME, or ~/.cache. OPTION: neither is known. */
enum shoal_status base_tuning_path(char path[BASE_TUNING_PATH_BYTES]);
/* Reads a file; a table without rows if there is none. FORMAT, with path and line: it is broken, a
 * part of a file, or of another machine or version. SYSTEM: it can't be read. Never blocks. */
enum shoal_status base_tuning_read(const char *path, struct base_tuning_table *out);
/* Makes the file and its folders; readers see the old file or the new one. SYSTEM. */
enum shoal_status base_tuning_write(const char *path, const struct base_tuning_table *table);

/* What new groups of this process use: nothing with option SHOAL_TUNE off or where no file is,
 * else the file's rows. On an error, which is as of base_tuning_read, nothing either. */
enum shoal_status base_tuning_load(struct base_tuning_table *out);

/* Groups that this process makes from now on use this row, whatever their size and whatever the
 * file says; all their ranks must do the same. NULL: as the file says. For `shoal tune`; one thread
 * at a time. */
void base_tuning_force(const struct base_tuning *row);
const struct base_tuning *base_tuning_forced(void); /* NULL: none */

#endif
