/* SPDX-License-Identifier: Apache-2.0 */
/* refusal.h: what the server itself answers, before or instead of a service's handler. */
#ifndef SHOAL_HTTP_REFUSAL_H
#define SHOAL_HTTP_REFUSAL_H

#include "http/signature.h"

struct http_request;

/* Further to the verdicts on a signature. */
enum refusal {
    REFUSAL_HEAD_TOO_LARGE = HTTP_VERDICT_COUNT,
    REFUSAL_TARGET, /* path or query can't be decoded */
    REFUSAL_BODY_TOO_LARGE,
    REFUSAL_BODY_FORM, /* not what its headers announced */
    REFUSAL_BODY_SHORT,
    REFUSAL_INTERNAL,
    REFUSAL_MEMORY,
    REFUSAL_STOPPING,
    REFUSAL_COUNT
};

/* Answers with the error that the request's service has for it. `more`: words to put behind the
 * text, or NULL. */
void http_refuse(struct http_request *request, int refusal, const char *more);

#endif
