/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search_text.h: a SearchExpression as the text of an SQL statement. What comes from the request is
 * in the statement's values, never in its text.
 */
#ifndef SHOAL_SERVICE_SEARCH_TEXT_H
#define SHOAL_SERVICE_SEARCH_TEXT_H

#include <jansson.h>

#include "job/validate.h"
#include "sql/database.h"

#define SERVICE_SEARCH_BYTES 65536
#define SERVICE_SEARCH_DEPTH 5

struct service_search_text {
    char sql[SERVICE_SEARCH_BYTES];
    size_t used;
    json_t *values; /* of ?1, ?2, …: texts and numbers */
    struct job_fault *fault;
    bool failed; /* the fault says why */
};

/* Writes "SELECT <columns> FROM job WHERE … ORDER BY … LIMIT … OFFSET …" for a request of Search,
 * which has passed its model. False with the fault. values must be released by json_decref either
 * way. */
bool service_search_write(struct service_search_text *text, const json_t *request, int64_t limit,
                          int64_t offset, struct job_fault *fault);
/* Borrows the values until the statement is finalized. */
void service_search_bind(const struct service_search_text *text, struct sql_database *database,
                         sqlite3_stmt *statement);
/* Milliseconds since 1970 of a date and time of ISO 8601, or of a number of seconds. */
bool service_time_read(const char *text, int64_t *ms);

#endif
