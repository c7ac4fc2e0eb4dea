/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: the metrics of a job, from its supervisor's start to its end. */
#ifndef SHOAL_SERVICE_METRICS_H
#define SHOAL_SERVICE_METRICS_H

#include "service/job.h"
#include "service/service_state.h"

/* Its lines are looked at from now on. What goes wrong is logged; the job goes on without. */
void service_metrics_begin(struct service *service, const struct service_job *job);
/* Looks at what is left; FinalMetricDataList, for the caller to release, NULL if there are none. */
json_t *service_metrics_end(struct service *service, const struct service_job *job);

#endif
