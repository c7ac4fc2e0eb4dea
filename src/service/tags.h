/* SPDX-License-Identifier: Apache-2.0 */
/* tags.h: tags of resources, by ARN. One has a meaning here: the priority of a job in the queue. */
#ifndef SHOAL_SERVICE_TAGS_H
#define SHOAL_SERVICE_TAGS_H

#include "service/call.h"

#define SERVICE_TAGS_MAX     50
#define SERVICE_PRIORITY_TAG "shoal:priority"
#define SERVICE_PRIORITY_MAX 1000000

/* Refuses keys that are there twice, and a priority that is no number; *priority is set if there is
 * one. `tags` may be NULL. */
enum shoal_status service_tags_check(struct service_call *call, const json_t *tags,
                                     int64_t *priority);
/* NULL: none. */
enum shoal_status service_tags_put(struct sql_database *database, const char *arn,
                                   const json_t *tags);
/* A page of at most `limit` tags behind the key `after`. */
enum shoal_status service_tags_get(struct sql_database *database, const char *arn,
                                   const char *after, int limit, json_t **out);

#endif
