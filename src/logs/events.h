/* SPDX-License-Identifier: Apache-2.0 */
/* events.h: operations on streams; each as struct logs_operation says. */
#ifndef SHOAL_LOGS_EVENTS_H
#define SHOAL_LOGS_EVENTS_H

#include "logs/line.h"
#include "logs/request.h"

#define LOGS_EVENTS_MAX      10000
#define LOGS_REPLY_BYTES_MAX (1 << 20)

enum shoal_status logs_groups_describe(struct logs *logs, const json_t *request, json_t **reply,
                                       struct job_fault *fault);
enum shoal_status logs_streams_describe(struct logs *logs, const json_t *request, json_t **reply,
                                        struct job_fault *fault);
enum shoal_status logs_events_get(struct logs *logs, const json_t *request, json_t **reply,
                                  struct job_fault *fault);
enum shoal_status logs_events_filter(struct logs *logs, const json_t *request, json_t **reply,
                                     struct job_fault *fault);

/* {"timestamp", "message", "ingestionTime"}; NULL without memory. */
json_t *logs_event_json(const struct logs_line *line);

#endif
