/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.h: what a channel in Pipe mode is on the disk, between the service, which knows the bucket,
 * and the process that fills the FIFOs, which does not.
 *
 *   channels/feed.json                 a list of pipes, as struct channel_pipe has them
 *   channels/pipe/<channel>/records    a line of JSON for each record: ["text", 17, ...]; a number
 *                                      stands for a file
 *   channels/pipe/<channel>/files/1/17 hard links to objects, 4,096 in a folder (in hexadecimal)
 */
#ifndef SHOAL_CHANNEL_PIPE_H
#define SHOAL_CHANNEL_PIPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel/channel.h"

#define CHANNEL_PIPE_FOLDER     "pipe"
#define CHANNEL_PIPE_RECORDS    "records"
#define CHANNEL_PIPE_LINE_BYTES ((size_t)4 << 20) /* a record's at most */
#define CHANNEL_PIPE_FILE_BYTES 40

struct channel_pipe {
    const char *channel;
    bool is_gzip, is_record_io, is_sharded, is_shuffled;
    uint64_t seed;
    const json_t *hosts; /* names, in the order of shards */
};

/* "files/1/1a2b". */
void channel_pipe_file(int64_t number, char out[CHANNEL_PIPE_FILE_BYTES]);
/* Makes the FIFO of an epoch in a host's folder, in the place of what is there. */
enum shoal_status channel_pipe_make(int job_fd, const char *host, const char *channel,
                                    uint64_t epoch);
enum shoal_status channel_pipe_remove(int job_fd, const char *host, const char *channel,
                                      uint64_t epoch);
/* Where it is, below the job's folder. */
void channel_pipe_path(const char *host, const char *channel, uint64_t epoch, char *out,
                       size_t capacity);

/* ---- RecordIO: a magic word, a length, the bytes, zeros up to a multiple of 4 ---- */

#define CHANNEL_RECORD_HEAD_BYTES 8
#define CHANNEL_RECORD_BYTES_MAX  ((INT64_C(1) << 29) - 1)
/* The bytes before and behind `bytes` bytes: returns how many zeros go behind. */
int channel_record_head(uint32_t bytes, unsigned char head[CHANNEL_RECORD_HEAD_BYTES]);

#endif
