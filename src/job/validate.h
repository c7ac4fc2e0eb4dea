/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.h: requests against the model of an API, with the service's own errors:
 *
 *   ValidationException   1 validation error detected: Value 'a_b' at 'trainingJobName' failed to
 *                         satisfy constraint: Member must satisfy regular expression pattern: …
 *   SerializationException   NUMBER_VALUE cannot be converted to String
 *
 * What the model does not know is ignored, as the service does.
 */
#ifndef SHOAL_JOB_VALIDATE_H
#define SHOAL_JOB_VALIDATE_H

#include <jansson.h>
#include <stdbool.h>

#include "job/model.h"
#include "shoal.h"

#define JOB_FAULT_BYTES 4096

/* An error for the client: its type and text. */
struct job_fault {
    const char *type;
    char text[JOB_FAULT_BYTES];
};

/* What a failed check is to the client: `otherwise`, its own fault, but for want of memory, which
 * is the service's: a fault of type "ServiceUnavailable". */
const char *job_fault_type(enum shoal_status status, const char *otherwise);
/* The status of its reply: 400, or 503. */
int job_fault_status(const struct job_fault *fault);

struct job_validator;

/* Compiles the model's patterns. SHOAL_ERR_INTERNAL names one that can't be. */
enum shoal_status job_validator_create(const struct job_model *model, struct job_validator **out);
/* NULL is allowed. */
void job_validator_free(struct job_validator *validator);

/* NULL if the model has no operation of that name. */
const struct job_operation *job_operation_find(const struct job_model *model, const char *name);
/* Whether the request is one that the operation takes; else fills `fault`. Any thread. */
bool job_validate(const struct job_validator *validator, const struct job_operation *operation,
                  const json_t *request, struct job_fault *fault);

#endif
