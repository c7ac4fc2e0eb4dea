/* SPDX-License-Identifier: Apache-2.0 */
/* headers.h: what is said of an object, as the index keeps it: lines "name:value\n", names in small
 * letters. */
#ifndef SHOAL_S3_HEADERS_H
#define SHOAL_S3_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

#include "s3/code.h"

#define S3_CLASS_HEADER   "x-amz-storage-class"
#define S3_CLASS_STANDARD "STANDARD"
#define S3_CLASS_BYTES    24 /* of a storage class, with its NUL */

/* The value of a line; NULL: there is none. Not NUL-terminated: *bytes. */
const char *s3_headers_find(const char *headers, const char *name, size_t *bytes);

/* Whether S3 has a storage class of this name. */
bool s3_class_is_known(const char *name);
/* The storage class that the lines name, S3_CLASS_STANDARD where they name none. */
void s3_headers_class(const char *headers, char out[S3_CLASS_BYTES]);

/* Whether a line, by its name, is about how an object is stored rather than what it is: a copy does
 * not take it from its source. */
bool s3_header_is_of_storage(const char *name, size_t bytes);
/* The lines of a copy: the source's but for those of storage, then `own`. base_free. */
enum s3_code s3_headers_copied(const char *source, const char *own, char **out);

#endif
