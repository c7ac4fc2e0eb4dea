/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h: a member of InputDataConfig, read; and places in S3 as requests write them.
 */
#ifndef SHOAL_CHANNEL_INPUT_H
#define SHOAL_CHANNEL_INPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "channel/channel.h"
#include "s3/name.h"

#define CHANNEL_INPUTS_MAX 64

/* s3://bucket/key; the key may be empty. */
struct channel_uri {
    char bucket[S3_BUCKET_NAME_MAX + 1];
    char key[S3_KEY_BYTES_MAX + 1];
};
/* Also https://bucket.s3.REGION.amazonaws.com/key and https://s3.REGION.amazonaws.com/bucket/key.
 * SHOAL_ERR_ARGUMENT. */
enum shoal_status channel_uri_parse(const char *text, struct channel_uri *out);

enum channel_mode { CHANNEL_FILE, CHANNEL_FAST_FILE, CHANNEL_PIPE };
enum channel_kind { CHANNEL_PREFIX, CHANNEL_MANIFEST, CHANNEL_AUGMENTED, CHANNEL_FILE_SYSTEM };

struct channel_input {
    const char *name;
    enum channel_mode mode;
    enum channel_kind kind;
    const char *uri_text; /* as the request has it; NULL for a file system */
    struct channel_uri uri;
    bool is_sharded, is_gzip, is_record_io, is_shuffled;
    uint64_t seed;
    const json_t *attributes; /* names, NULL: none */
    const json_t *groups;     /* names of instance groups; NULL: all */
    const char *content_type; /* NULL: none */
    const char *file_system, *directory;
    bool is_lustre, is_writable;
};

/* All inputs of a request; borrows from it. What doesn't go together is SHOAL_ERR_ARGUMENT.
 * *out is freed by base_free. */
enum shoal_status channel_inputs_read(const struct channel_job *job, struct channel_input **out,
                                      int *count);

/* The hosts that get an input, by their numbers; into room for job->host_count. Returns how many.
 */
int channel_input_hosts(const struct channel_input *input, const struct channel_job *job,
                        int *hosts);

/* The machine's directory that stands for a directory of a file system, by the lines
 * `fs-0123456789abcdef0 /directory [ro]` of job->file_systems. SHOAL_ERR_ARGUMENT. */
enum shoal_status channel_file_system_find(const struct channel_job *job,
                                           const struct channel_input *input, char *out,
                                           size_t capacity);

/* NULL where the path isn't there or is no text: {"OutputDataConfig", "S3OutputPath", NULL}. */
const char *channel_request_text(const json_t *request, const char *const *path);

#endif
