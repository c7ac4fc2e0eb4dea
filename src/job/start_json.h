/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_json.h: values put in objects and lists, which take them over. NULL is a value that could
 * not be made: SHOAL_ERR_MEMORY.
 */
#ifndef SHOAL_JOB_START_JSON_H
#define SHOAL_JOB_START_JSON_H

#include <jansson.h>

#include "shoal.h"

enum shoal_status start_put(json_t *object, const char *name, json_t *value);
enum shoal_status start_put_text(json_t *object, const char *name, const char *text);
enum shoal_status start_add(json_t *list, json_t *value);
enum shoal_status start_add_text(json_t *list, const char *text);

/* The names of an object's members in their order, NULL behind: Python's sort. They are the
 * object's; the list is to be released by base_free. */
enum shoal_status start_names(const json_t *object, const char ***out);

#endif
