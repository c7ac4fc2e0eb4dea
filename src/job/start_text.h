/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_text.h: JSON values as the texts that Python programs make of them, which scripts compare
 * and parse: json.dumps with sorted keys and no blanks, and str().
 */
#ifndef SHOAL_JOB_START_TEXT_H
#define SHOAL_JOB_START_TEXT_H

#include <jansson.h>

#include "shoal.h"

/* A value of a variable: a text as it is, null as nothing, all else as JSON. To be released by
 * base_free. */
enum shoal_status start_text_variable(const json_t *value, char **out);
/* A value of an argument: an object as "k=v,k=v", null as nothing, all else as str() has it. */
enum shoal_status start_text_argument(const json_t *value, char **out);
/* JSON, also of a text. */
enum shoal_status start_text_json(const json_t *value, char **out);

#endif
