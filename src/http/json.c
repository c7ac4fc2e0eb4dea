/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: bodies of the JSON services, in and out. */
#include "http/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define CONTENT_TYPE "application/x-amz-json-1.1"

json_t *http_json_body(struct http_request *request)
{
    size_t bytes = 0;
    const char *body = http_body(request, &bytes);
    json_error_t error;
    if (bytes == 0)
        return json_object();
    json_t *object = json_loadb(body, bytes, 0, &error);
    if (object == NULL) {
        http_reply_error(request, 400, "SerializationException", "line %d, column %d: %s",
                         error.line, error.column, error.text);
    } else if (!json_is_object(object)) {
        json_decref(object);
        object = NULL;
        http_reply_error(request, 400, "SerializationException",
                         "The body of a request is a JSON object.");
    }
    return object;
}

enum shoal_status http_json_reply(struct http_request *request, const json_t *object)
{
    if (object == NULL)
        return http_reply_bytes(request, 200, CONTENT_TYPE, "", 0);
    char *text = json_dumps(object, JSON_COMPACT);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a reply");
    enum shoal_status status = http_reply_bytes(request, 200, CONTENT_TYPE, text, strlen(text));
    free(text);
    return status;
}
