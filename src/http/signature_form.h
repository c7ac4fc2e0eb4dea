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

#endif
