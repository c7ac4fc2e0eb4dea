/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: documents of the services that speak AWS JSON 1.1: SageMaker, its logs and metrics.
 *
 * A request is a POST whose body is one JSON object; X-Amz-Target names the operation. A reply is
 * an object too, or nothing at all for operations without output. Errors: http_reply_error.
 */
#ifndef SHOAL_HTTP_JSON_H
#define SHOAL_HTTP_JSON_H

#include <jansson.h>

#include "http/http.h"

/* In `complete`: the collected body, an empty one as {}. NULL when it is no object: it has been
 * replied to with SerializationException, which says where. The caller releases it by json_decref.
 */
json_t *http_json_body(struct http_request *request);
/* 200 with the object, borrowed; NULL: without a body. */
enum shoal_status http_json_reply(struct http_request *request, const json_t *object);

#endif
