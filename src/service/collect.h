/* SPDX-License-Identifier: Apache-2.0 */
/* collect.h: from the record of a job's end to its last status. */
#ifndef SHOAL_SERVICE_COLLECT_H
#define SHOAL_SERVICE_COLLECT_H

#include "service/step.h"

/* Stores what the job has made and ends it, or has it wait for another attempt. */
enum shoal_status service_collect(struct service *service, struct service_job *job);

#endif
