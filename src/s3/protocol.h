/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol.h: the REST-XML protocol of S3 over a store: a handler for the HTTP server's S3 service.
 *
 * Requests in path style and in virtual-host style. What is not there answers NotImplemented with
 * the operation's name. docs/s3.md lists what is.
 */
#ifndef SHOAL_S3_PROTOCOL_H
#define SHOAL_S3_PROTOCOL_H

#include "http/http.h"
#include "s3/store.h"

/* Of a part: its sender does not need its MD5 as ETag ("opaque"), but says a checksum. */
#define S3_ETAG_HEADER "x-shoal-etag"

struct s3_protocol {
    struct s3_store *store; /* borrowed */
};

/* Its user is a struct s3_protocol that stays as long as the server runs. Constant. */
const struct http_handler *s3_protocol_handler(void);

#endif
