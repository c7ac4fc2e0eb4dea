/* SPDX-License-Identifier: Apache-2.0 */
/* name.h: which names buckets and objects may have. */
#ifndef SHOAL_S3_NAME_H
#define SHOAL_S3_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "s3/code.h"

#define S3_BUCKET_NAME_MAX 63
#define S3_KEY_BYTES_MAX   1024

/* The rules for new buckets: 3 to 63 of a-z, 0-9, '-' and '.', letters or digits at both ends and
 * around each '.', no IP address, none of the reserved beginnings and ends. INVALID_BUCKET_NAME
 * says which rule. */
enum s3_code s3_bucket_name_check(const char *name);

/* 1 to 1,024 bytes of UTF-8. KEY_TOO_LONG, INVALID_ARGUMENT. */
enum s3_code s3_key_check(const char *key);

/* Whether these bytes are UTF-8 in its shortest form, without surrogates and without a NUL. */
bool s3_is_utf8(const char *text, size_t bytes);

/*
 * The path below a directory that stands for a key in a job: the key itself. INVALID_ARGUMENT for a
 * key that can't be one, with the key and the reason: it begins with '/', or one of its parts is
 * empty, "." or "..", or longer than 255 bytes. A key that ends in '/' stands for a directory:
 * *is_directory is set, and the '/' is no part of the check.
 */
enum s3_code s3_key_path_check(const char *key, bool *is_directory);

#endif
