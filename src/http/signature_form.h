/* SPDX-License-Identifier: Apache-2.0 */
/* signature_form.h: what the files of the signature share. */
#ifndef SHOAL_HTTP_SIGNATURE_FORM_H
#define SHOAL_HTTP_SIGNATURE_FORM_H

#include "http/signature.h"

struct http_text;

/* The canonical request. */
enum shoal_status signature_canonical(const struct http_message *message,
                                      const struct http_signature *signature, const char *payload,
                                      struct http_text *text);
/* The signature that the secret makes, by time, scope and names of headers of `signature`. */
enum shoal_status signature_make(const struct http_message *message,
                                 const struct http_signature *signature, const char *secret,
                                 const char *payload, char hex[HTTP_DIGEST_HEX_BYTES]);

/* The same of version 2 in a URL: HTTP_UNSIGNED if there is none; base64 in place of digits. */
enum http_verdict signature_old_read(const struct http_message *message,
                                     struct http_signature *out);
enum shoal_status signature_old_make(const struct http_message *message, const char *secret,
                                     char out[HTTP_DIGEST_HEX_BYTES]);

#endif
