/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outside.h: which buckets are not ours but another service's. A text of lines
 *
 *     BUCKET  ENDPOINT  [region=NAME] [profile=NAME] [style=path|virtual]
 *
 * BUCKET may have '*' and '?'; the first line that fits decides. '#' begins a comment. Keys are the
 * profile's, else those of the environment (http/endpoint.h).
 */
#ifndef SHOAL_S3_OUTSIDE_H
#define SHOAL_S3_OUTSIDE_H

#include "s3/client.h"

#define S3_OUTSIDE_LINES_MAX 1000

struct s3_outside;

/* A file that is not there says that all buckets are ours. SHOAL_ERR_FORMAT names file and line. */
enum shoal_status s3_outside_load(const char *path, struct s3_outside **out);
/* The same of a text; `name` is for errors. */
enum shoal_status s3_outside_parse(const char *name, const char *text, size_t bytes,
                                   struct s3_outside **out);
void s3_outside_free(struct s3_outside *outside);
/* Whether the bucket is elsewhere. */
bool s3_outside_has(const struct s3_outside *outside, const char *bucket);
/* A client for the service that has it; keys are looked for now. The endpoint and style of
 * `options` are set here. INTERNAL_ERROR says what is wrong with the keys. */
enum s3_code s3_outside_client(const struct s3_outside *outside, const char *bucket,
                               struct s3_client_options options, struct s3_client **out);

#endif
