/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query.h: CloudWatch's older form, in which clients spoke before they had JSON: a request is a
 * form whose names are paths, "Dimensions.member.1.Name", and a reply is XML.
 */
#ifndef SHOAL_LOGS_QUERY_H
#define SHOAL_LOGS_QUERY_H

#include <jansson.h>

#include "http/text.h"
#include "job/model.h"

/* Puts what a pair of the form says into a request as JSON has it, with the types of the model;
 * what can't be of its type stays a text, for the model's check to refuse. Names that the model
 * does not know are ignored, as everywhere. SHOAL_ERR_FORMAT: the name is no path in a list;
 * SHOAL_ERR_MEMORY. */
enum shoal_status logs_query_put(const struct job_model *model,
                                 const struct job_operation *operation, json_t *request,
                                 const char *name, const char *value);

/* The document of a reply. */
void logs_query_reply(struct http_text *out, const char *operation, const char *request_id,
                      const json_t *reply);

#endif
