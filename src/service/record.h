/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h: the rows of training jobs, read with any connection, changed within the writer's
 * transactions.
 */
#ifndef SHOAL_SERVICE_RECORD_H
#define SHOAL_SERVICE_RECORD_H

#include <jansson.h>

#include "job/outcome.h"
#include "service/sql.h"
#include "service/status.h"
#include "sql/database.h"

#define SERVICE_NAME_BYTES      64
#define SERVICE_ARN_BYTES       192
#define SERVICE_SECONDARY_BYTES 32
#define SERVICE_REASON_BYTES    (JOB_REASON_CHARS_MAX * 4 + 1)

extern const struct sql_schema service_schema;

struct service_row {
    int64_t id, priority;
    enum service_phase phase;
    int attempt; /* from 1 */
    char name[SERVICE_NAME_BYTES], arn[SERVICE_ARN_BYTES];
    char status[SERVICE_SECONDARY_BYTES], secondary[SERVICE_SECONDARY_BYTES];
    bool is_stopping;                  /* its user wants it to end */
    char reason[SERVICE_REASON_BYTES]; /* "" unless it failed */
    int64_t created_ms, modified_ms;
    int64_t started_ms, ended_ms;            /* 0: not yet */
    int64_t trained_ms;                      /* of the attempts that have ended */
    uint64_t accelerators;                   /* a bit for each that it has, once it was begun */
    int64_t keep_s;                          /* KeepAlivePeriodInSeconds */
    char pool[SERVICE_SECONDARY_BYTES];      /* WarmPoolStatus; "": it has none */
    int64_t pool_until_ms, pool_retained_ms; /* of Available; of Reused and Terminated */
    char pool_reused_by[SERVICE_NAME_BYTES]; /* of Reused */
    int64_t pool_cache;                      /* 0: none */
    int64_t pool_since_ms;                   /* when its instances, or those before, began */
};

int64_t service_now_ms(void); /* since 1970 */

/* Of a statement that selects SERVICE_JOB_COLUMNS, at a row. */
void service_row_take(sqlite3_stmt *statement, struct service_row *out);
/* *found false: there is none. */
enum shoal_status service_row_find(struct sql_database *database, const char *name, bool *found,
                                   struct service_row *out);
enum shoal_status service_row_by_arn(struct sql_database *database, const char *arn, bool *found,
                                     struct service_row *out);
/* SHOAL_ERR_STATE: it was deleted. */
enum shoal_status service_row_get(struct sql_database *database, int64_t id,
                                  struct service_row *out);

/* Begins a secondary status and ends the one before; sets the status that goes with it. A job that
 * is being stopped stays "Stopping" until it has ended. */
enum shoal_status service_row_enter(struct sql_database *database, int64_t id,
                                    enum service_secondary which);
enum shoal_status service_row_phase(struct sql_database *database, int64_t id,
                                    enum service_phase phase);
/* One of the statements that change a job by its id (?1) and a number (?2). */
enum shoal_status service_row_number(struct sql_database *database, enum service_sql which,
                                     int64_t id, int64_t number);
enum shoal_status service_row_text(struct sql_database *database, enum service_sql which,
                                   int64_t id, const char *text);

/* What the job was created with; the caller releases it by json_decref. `metrics` may be NULL. */
enum shoal_status service_request_get(struct sql_database *database, int64_t id, json_t **request,
                                      json_t **metrics);
/* Replaces it, or adds it. */
enum shoal_status service_request_put(struct sql_database *database, enum service_sql which,
                                      int64_t id, const json_t *request);
/* Rows for searches: every scalar in `value`, below `path`. */
enum shoal_status service_property_put(struct sql_database *database, int64_t id, const char *path,
                                       const json_t *value);
/* The same of metrics, by their names. */
enum shoal_status service_metrics_index(struct sql_database *database, int64_t id,
                                        const json_t *metrics);
/* The members of DescribeTrainingJob that are no part of the request. */
enum shoal_status service_transitions_get(struct sql_database *database, int64_t id, json_t **out);
/* The job with all that belongs to it. */
enum shoal_status service_row_delete(struct sql_database *database, const struct service_row *row);

#endif
