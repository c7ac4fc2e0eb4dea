/* SPDX-License-Identifier: Apache-2.0 */
/* start_json.c: see start_json.h. jansson takes a value over also when it fails. */
#include "job/start_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum shoal_status start_put(json_t *object, const char *name, json_t *value)
{
    if (value == NULL || json_object_set_new(object, name, value) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for \"%s\", or it is not valid UTF-8", name);
    return SHOAL_OK;
}

enum shoal_status start_put_text(json_t *object, const char *name, const char *text)
{
    return start_put(object, name, json_string(text));
}

enum shoal_status start_add(json_t *list, json_t *value)
{
    if (value == NULL || json_array_append_new(list, value) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a list, or a text is not valid UTF-8");
    return SHOAL_OK;
}

enum shoal_status start_add_text(json_t *list, const char *text)
{
    return start_add(list, json_string(text));
}

static int compare_texts(const void *first, const void *second)
{
    return strcmp(*(const char *const *)first, *(const char *const *)second);
}

enum shoal_status start_names(const json_t *object, const char ***out)
{
    size_t count = 0;
    const char *name;
    json_t *value;
    TRY(BASE_NEW_ARRAY(out, json_object_size(object) + 1, "the names of an object"));
    json_object_foreach((json_t *)object, name, value)(*out)[count++] = name;
    qsort(*out, count, sizeof(**out), compare_texts);
    return SHOAL_OK;
}
