/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: operations of a public API and the shapes of their inputs, as tables that tools/make-api
 * writes when Shoal is built.
 */
#ifndef SHOAL_JOB_MODEL_H
#define SHOAL_JOB_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_shape_kind {
    JOB_STRUCTURE,
    JOB_LIST,
    JOB_MAP,
    JOB_STRING,
    JOB_INTEGER, /* of 32 bits */
    JOB_LONG,
    JOB_FLOAT,
    JOB_BOOLEAN,
    JOB_TIMESTAMP /* seconds since 1970 */
};

struct job_member {
    const char *name;
    uint16_t shape;
    bool required;
};

struct job_shape {
    const char *name;
    enum job_shape_kind kind;
    uint16_t first_member, member_count; /* of a structure, in the model's members */
    uint16_t first_value, value_count;   /* of an enumeration, in the model's values */
    uint16_t key, element;               /* of a map; of a map or a list */
    bool has_min, has_max;
    double min, max;        /* of a number, or the length of a text, list or map */
    const char *pattern;    /* for the whole text, as errors show it; NULL: any */
    const char *expression; /* the same, as PCRE2 writes it */
};

struct job_operation {
    const char *name;
    uint16_t input;
};

struct job_model {
    const struct job_shape *shapes;
    size_t shape_count;
    const struct job_member *members;
    const char *const *values;
    const struct job_operation *operations; /* sorted by name */
    size_t operation_count;
};

/* monitoring: CloudWatch. */
extern const struct job_model job_model_sagemaker, job_model_logs, job_model_monitoring;

#endif
