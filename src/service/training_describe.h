/* SPDX-License-Identifier: Apache-2.0 */
/* training_describe.h: a training job as DescribeTrainingJob and Search show it. */
#ifndef SHOAL_SERVICE_TRAINING_DESCRIBE_H
#define SHOAL_SERVICE_TRAINING_DESCRIBE_H

#include "service/record.h"

/* A new object, released by json_decref. */
enum shoal_status service_training_json(struct sql_database *database,
                                        const struct service_row *row, json_t **out);
/* The same, as ListTrainingJobs has it. NULL: no memory. */
json_t *service_training_summary(const struct service_row *row);

#endif
