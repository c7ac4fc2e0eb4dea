/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.h: CloudWatch Logs and CloudWatch over HTTP: requests of AWS JSON, CloudWatch's also as
 * forms (query.h), checked with the services' models. */
#ifndef SHOAL_LOGS_PROTOCOL_H
#define SHOAL_LOGS_PROTOCOL_H

#include "http/http.h"
#include "logs/logs.h"

struct logs_protocol;

/* Borrows the logs. SHOAL_ERR_MEMORY, SHOAL_ERR_INTERNAL. */
enum shoal_status logs_protocol_create(struct logs *logs, struct logs_protocol **out);
/* NULL is allowed. No request may be under way. */
void logs_protocol_free(struct logs_protocol *protocol);
/* For HTTP_LOGS, HTTP_MONITORING and HTTP_MONITORING_QUERY; its user is the protocol. */
const struct http_handler *logs_protocol_handler(void);

#endif
