/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: what the operations have in common: members of requests, errors, the state. */
#ifndef SHOAL_LOGS_REQUEST_H
#define SHOAL_LOGS_REQUEST_H

#include <limits.h>
#include <pthread.h>

#include "logs/folder.h"
#include "logs/logs.h"

struct logs_job;

struct logs {
    char root[PATH_MAX];
    pthread_mutex_t lock; /* over all below, and over `use` of each job */
    pthread_cond_t change;
    struct logs_job *jobs; /* those that were begun and have not ended */
    bool stops;
    bool has_thread;
    pthread_t thread;
};

#define LOGS_INVALID   "InvalidParameterException"
#define LOGS_NOT_FOUND "ResourceNotFoundException"

/* Fills the fault; returns SHOAL_OK, for `return logs_refuse(…)` of an operation. */
enum shoal_status logs_refuse(struct job_fault *fault, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the request names the group there is; else fills the fault. */
bool logs_group_check(const json_t *request, struct job_fault *fault);

/* Members of a request that has passed its model. */
const char *logs_text(const json_t *request, const char *name, const char *otherwise);
int64_t logs_number(const json_t *request, const char *name, int64_t otherwise);
bool logs_flag(const json_t *request, const char *name);

/* The digits of a token up to its end or `*end`, which they end with; false for other texts. */
bool logs_digits(const char *text, char end, int64_t *out, const char **rest);

/* A reply that is whole; NULL (an allocation failed) is SHOAL_ERR_MEMORY. Takes it. */
enum shoal_status logs_reply(json_t *made, json_t **reply);
/* Puts it behind the others, or fails for want of memory. Takes it. */
enum shoal_status logs_append(json_t *list, json_t *item);

#endif
