/* SPDX-License-Identifier: Apache-2.0 */
/* xml_write.h: XML documents of replies. What fails is remembered, and said at the end. */
#ifndef SHOAL_S3_XML_WRITE_H
#define SHOAL_S3_XML_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/code.h"

struct s3_xml {
    char *text;
    size_t bytes, room;
    bool has_failed;
};

/* The declaration, and the root with S3's namespace. */
void s3_xml_begin(struct s3_xml *xml, const char *root);
void s3_xml_open(struct s3_xml *xml, const char *name);
void s3_xml_close(struct s3_xml *xml, const char *name);
/* A text within the element that is open, escaped. */
void s3_xml_content(struct s3_xml *xml, const char *text);
/* An element with a text, escaped; controls that XML can't hold become U+FFFD. */
void s3_xml_text(struct s3_xml *xml, const char *name, const char *text);
void s3_xml_number(struct s3_xml *xml, const char *name, int64_t number);
void s3_xml_bool(struct s3_xml *xml, const char *name, bool value);
/* 2026-01-31T23:59:59.000Z */
void s3_xml_time(struct s3_xml *xml, const char *name, int64_t ms);
/* In quotes, as ETags are. */
void s3_xml_etag(struct s3_xml *xml, const char *etag);
/* With every byte but letters, digits and "-_.~/" as %XX where is_encoded. */
void s3_xml_key(struct s3_xml *xml, const char *name, const char *key, bool is_encoded);
/* Closes the root; MEMORY came up on the way: INTERNAL_ERROR. */
enum s3_code s3_xml_end(struct s3_xml *xml, const char *root);
void s3_xml_release(struct s3_xml *xml);

#endif
