/* SPDX-License-Identifier: Apache-2.0 */
/*
 * known.h: which checkpoints of a job its bucket may have, in a file of the job's folder, so that a
 * service that comes after a killed one knows what was removed between the two.
 */
#ifndef SHOAL_CHANNEL_KNOWN_H
#define SHOAL_CHANNEL_KNOWN_H

#include "channel/tree.h"

#define CHANNEL_KNOWN_FOLDER (-1) /* of entries that come from the file */

struct channel_known { /* zeroed is a start */
    char *text;        /* what the file has */
    size_t bytes;
};

/* The files that are there now, and those seen before whose keys are still to go (`is_put` says of
 * which there is a key). Writes only what has changed. SHOAL_ERR_SYSTEM. */
enum shoal_status channel_known_write(struct channel_known *known, int folder_fd,
                                      const struct channel_tree *now,
                                      const struct channel_tree *seen, const bool *is_put);
/* Adds what the file names, in its order. No file is none. */
enum shoal_status channel_known_read(int folder_fd, struct channel_tree *tree);
void channel_known_release(struct channel_known *known);

#endif
