/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.h: from a request to a supervisor that runs it. */
#ifndef SHOAL_SERVICE_PREPARE_H
#define SHOAL_SERVICE_PREPARE_H

#include "service/step.h"

/* Makes the job's folder anew, fills it, and starts its supervisor, unless one runs there or has
 * left its record. A failure with a reason is the job's own; one without (reason is "") may be
 * tried again. */
enum shoal_status service_prepare(struct service *service, struct service_job *job,
                                  char reason[SERVICE_REASON_BYTES]);

/* A failure's text as a FailureReason: with the public service's word in front, if it has none. */
void service_reason(enum shoal_status status, char out[SERVICE_REASON_BYTES]);

#endif
