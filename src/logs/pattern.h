/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h: filter patterns of FilterLogEvents:
 *
 *     ERROR step          lines with both
 *     "out of memory"     a phrase, as it stands
 *     ?ERROR ?WARN        lines with one of them (ignored beside terms without a '?')
 *     ERROR -retry        lines with the first and without the second
 *     %loss=[0-9.]+%      a regular expression
 *
 * Terms are found anywhere in a line, in the case they have. Words other than of letters, digits
 * and
 * '_' stand in quotes. Patterns for JSON ({…}) and for columns ([…]) are refused.
 */
#ifndef SHOAL_LOGS_PATTERN_H
#define SHOAL_LOGS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

struct logs_pattern;

/* SHOAL_ERR_ARGUMENT says what is wrong with it. "" lets all lines pass. */
enum shoal_status logs_pattern_create(const char *text, struct logs_pattern **out);
/* NULL is allowed. */
void logs_pattern_free(struct logs_pattern *pattern);
/* Whether a line passes. One thread at a time. */
bool logs_pattern_passes(struct logs_pattern *pattern, const char *line, size_t bytes);
/* Lines whose search reached the limit of steps, and didn't pass for that. */
int logs_pattern_overruns(const struct logs_pattern *pattern);

#endif
