/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h: one request to SageMaker's API, from its body to its reply.
 *
 * The body is parsed, validated against the API's model, and checked for what needs no database, on
 * the connection's thread. Then `run` reads with a reader's connection and replies at once, or it
 * writes: it is applied in the writer's transaction, and replied to when that is committed. Either
 * way it fills `output`, or refuses the call.
 */
#ifndef SHOAL_SERVICE_CALL_H
#define SHOAL_SERVICE_CALL_H

#include <jansson.h>

#include "job/validate.h"
#include "service/record.h"
#include "service/service_state.h"

struct service_call;

struct service_operation {
    const char *name;
    bool writes;
    /* May be NULL. Outside of any transaction. */
    enum shoal_status (*check)(struct service_call *call);
    /* Perhaps twice, when it writes. */
    enum shoal_status (*run)(struct service_call *call, struct sql_database *database);
    /* May be NULL. When what `run` wrote is committed, in the writer's thread. */
    void (*done)(struct service_call *call);
};

struct service_call {
    struct sql_write write; /* first */
    struct service *service;
    struct http_request *request;
    const struct service_operation *operation;
    json_t *input, *output; /* output NULL: a reply without a body */
    struct job_fault fault; /* type NULL: not refused */
    enum shoal_status status;
    char text[512];          /* of a failure */
    struct service_row row;  /* of the job that it is about */
    struct service_job *job; /* of one that it creates, until the watcher has it */
};

/* Refuses the call: `return service_refuse(call, "ValidationException", …)`. */
enum shoal_status service_refuse(struct service_call *call, const char *type, const char *format,
                                 ...) __attribute__((format(printf, 3, 4)));
/* A member of the input; NULL if it is not there. */
const char *service_input_text(const struct service_call *call, const char *name);
int64_t service_input_number(const struct service_call *call, const char *name, int64_t otherwise);
/* Fills call->row with the job that TrainingJobName names, or refuses. */
enum shoal_status service_call_find(struct service_call *call, struct sql_database *database);

/* The operations that there are; NULL for an unknown name. */
const struct service_operation *service_operation_find(const char *name);

/* Rows of the table, each in the file of its name. */
extern const struct service_operation service_training_create, service_training_describe,
    service_training_stop, service_training_update, service_training_delete, service_training_list,
    service_tags_add, service_tags_list, service_tags_delete, service_search;

#endif
