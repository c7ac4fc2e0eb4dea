/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive.h: tar archives from strangers, and of strangers' folders.
 *
 * Extracting believes nothing: a name that leads out of the folder, a link whose target does, a
 * device, a FIFO, and archives that unfold to more than the limits are errors, and nothing is ever
 * written through a link, whatever the archive put there before. Packing follows no link.
 */
#ifndef SHOAL_CHANNEL_ARCHIVE_H
#define SHOAL_CHANNEL_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

struct channel_archive_limits {
    int64_t entries;
    int64_t bytes;       /* of all files together */
    int64_t ratio;       /* bytes that come out for each that goes in ... */
    int64_t ratio_bytes; /* ... from so many bytes on */
};
/* For source code. */
#define CHANNEL_ARCHIVE_LIMITS_INIT                                  \
    {                                                                \
        .entries = 100000, .bytes = INT64_C(16) << 30, .ratio = 200, \
        .ratio_bytes = INT64_C(64) << 20                             \
    }

struct channel_archive_sum {
    int64_t entries, bytes;
};

/*
 * Extracts a tar archive, plain or with gzip, from a descriptor that can be read from its position
 * on, into a folder. Files get the archive's permissions without setuid and the like, at least
 * those of their owner to read and write (folders: and enter); owners and times are ours. A later
 * entry takes the place of an earlier one of the same name. An empty file is an archive of nothing.
 *
 * SHOAL_ERR_FORMAT: no archive, or cut off; SHOAL_ERR_ARGUMENT: an entry that is refused;
 * SHOAL_ERR_LIMIT; SHOAL_ERR_SYSTEM. The text names the entry. What was extracted before stays, for
 * the caller to remove. limits NULL: those above; sum may be NULL. Any thread; blocks.
 */
enum shoal_status channel_archive_extract(int archive_fd, int folder_fd,
                                          const struct channel_archive_limits *limits,
                                          struct channel_archive_sum *sum);

struct channel_tree;

/* Takes the archive's bytes; what it returns is passed on. */
typedef enum shoal_status (*channel_archive_sink)(void *user, const void *data, size_t bytes);

/*
 * Packs the entries of a tree (channel_tree_merge) as a tar archive with gzip: the same tree gives
 * the same bytes. Owners are 0, times have seconds. Links within the tree stay links, made
 * relative; those that lead elsewhere are left out and counted. A file that grows meanwhile is cut
 * off, one that shrinks gets zeros. `folders` are the descriptors that entries' `folder` counts,
 * `mount` is where the job saw the tree ("/opt/ml/model"). Any thread; blocks.
 */
enum shoal_status channel_archive_pack(const struct channel_tree *tree, const int *folders,
                                       const char *mount, channel_archive_sink sink, void *user,
                                       int64_t *left_out);

#endif
