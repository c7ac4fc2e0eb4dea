/* SPDX-License-Identifier: Apache-2.0 */
/*
 * definition.h: a job's MetricDefinitions, compiled: each has a name and a regular expression whose
 * first group is a number. All matches count, and each part between two '\r' is a line of its own,
 * because programs draw progress in one line.
 *
 * An expression that often takes long, or too many steps, is not used any more.
 */
#ifndef SHOAL_LOGS_DEFINITION_H
#define SHOAL_LOGS_DEFINITION_H

#include <jansson.h>

#include "base/clock.h"
#include "logs/logs.h"
#include "logs/regex.h"

#define LOGS_MATCHES_LINE_MAX 1000
/* What a slow search costs an expression and a quick one gives back, and what ends its use: twenty
 * slow ones in a row, but not one now and then on a busy machine. */
#define LOGS_SLOW_NS   (5 * BASE_NS_PER_MS)
#define LOGS_SLOW_COST 100
#define LOGS_SLOW_MAX  2000

struct logs_definition {
    const char *name; /* in `json` */
    struct logs_regex *regex;
    int slowness;
};

struct logs_definitions {
    json_t *json;
    size_t count;
    struct logs_definition items[LOGS_DEFINITIONS_MAX];
};

/* SHOAL_ERR_ARGUMENT says which can't be used. */
enum shoal_status logs_definitions_create(const json_t *json, struct logs_definitions **out);
/* NULL is allowed. */
void logs_definitions_free(struct logs_definitions *definitions);
/* The number that a text is, with blanks around it; false for others, and for those that are not
 * finite. */
bool logs_value_read(const char *text, size_t bytes, double *out);
/* Calls `found` for every value in a line, those of each definition in the line's order. */
void logs_definitions_search(struct logs_definitions *definitions, const char *line, size_t bytes,
                             void (*found)(void *user, size_t definition, double value),
                             void *user);

#endif
