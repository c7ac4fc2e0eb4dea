/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: operations on metrics, each as struct logs_operation says; and what jobs' files say.
 */
#ifndef SHOAL_LOGS_METRICS_H
#define SHOAL_LOGS_METRICS_H

#include "logs/job.h"

#define LOGS_NAMESPACE "/aws/sagemaker/TrainingJobs"
#define LOGS_DIMENSION "TrainingJobName"

enum shoal_status logs_metrics_list(struct logs *logs, const json_t *request, json_t **reply,
                                    struct job_fault *fault);
enum shoal_status logs_metrics_statistics(struct logs *logs, const json_t *request, json_t **reply,
                                          struct job_fault *fault);
enum shoal_status logs_metrics_data(struct logs *logs, const json_t *request, json_t **reply,
                                    struct job_fault *fault);

/* A job that was begun: looks at lines that came since. */
enum shoal_status logs_job_catch_up(struct logs *logs, const char *name);
/* The job's definitions, NULL if it has none; the caller releases them. */
enum shoal_status logs_job_definitions(const struct logs *logs, const char *name, json_t **out);

#endif
