/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml_read.h: the few XML bodies that requests and answers have.
 *
 * Expat reads them; a document type, and with it entities, is refused, and so are elements more
 * than 8 deep and texts above 4 KiB. Names are taken without their namespace. What is not known is
 * passed over, as S3 does.
 */
#ifndef SHOAL_S3_XML_READ_H
#define SHOAL_S3_XML_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "s3/code.h"
#include "s3/store.h"

/* Gives the path and the text of each element at its end: "Delete/Object/Key", then
 * "Delete/Object"; anything but S3_OK ends it. MALFORMED_XML. */
enum s3_code s3_xml_walk(const void *body, size_t bytes,
                         enum s3_code (*leave)(void *user, const char *path, const char *text),
                         void *user);

/* DeleteObjects. Keys lie one behind the other, each with its NUL; base_free. */
struct s3_delete_body {
    char *keys;
    size_t count;
    bool is_quiet;
};
/* MALFORMED_XML: also for none, and for more than S3_DELETE_KEYS_MAX. */
enum s3_code s3_delete_body_read(const void *body, size_t bytes, struct s3_delete_body *out);

/* CompleteMultipartUpload: number, ETag and checksum of each part; base_free. MALFORMED_XML. */
enum s3_code s3_complete_body_read(const void *body, size_t bytes, struct s3_part **out,
                                   size_t *count);

/* CreateBucketConfiguration, which may be empty: its region; "" if it says none. */
enum s3_code s3_bucket_body_read(const void *body, size_t bytes, char region[32]);

/* Tagging: as "key=value&…", with %XX; base_free. INVALID_TAG: more than 10, or too long ones. */
enum s3_code s3_tags_body_read(const void *body, size_t bytes, char **out);

#endif
