/* SPDX-License-Identifier: Apache-2.0 */
/* logs_fixture.h: a folder of logs for a test, and calls of operations on it. */
#ifndef SHOAL_LOGS_LOGS_FIXTURE_H
#define SHOAL_LOGS_LOGS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "logs/logs.h"

struct fixture {
    char root[64];
    struct logs *logs;
};

static inline int fixture_open(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    snprintf(fixture->root, sizeof(fixture->root), "/tmp/shoal-logs-XXXXXX");
    assert_non_null(mkdtemp(fixture->root));
    assert_int_equal(logs_open(fixture->root, &fixture->logs), SHOAL_OK);
    *state = fixture;
    return 0;
}

static inline int fixture_close(void **state)
{
    struct fixture *fixture = *state;
    char command[128];
    logs_close(fixture->logs);
    snprintf(command, sizeof(command), "rm -rf %s", fixture->root);
    assert_int_equal(system(command), 0);
    free(fixture);
    return base_memory_blocks() == 0 ? 0 : -1;
}

/* Appends a line as a supervisor does. */
static inline void fixture_write(struct fixture *fixture, const char *job, int number,
                                 int64_t epoch_s, int64_t time_ms, const char *text)
{
    char path[256];
    assert_int_equal(logs_stream_make(fixture->logs, job, number, epoch_s, path, sizeof(path)),
                     SHOAL_OK);
    FILE *file = fopen(path, "ae");
    assert_non_null(file);
    fprintf(file, "%013lld %s\n", (long long)time_ms, text);
    assert_int_equal(fclose(file), 0);
}

/* The reply to a request in JSON, or NULL and the fault. */
static inline json_t *fixture_call(struct fixture *fixture, const char *name, const char *request,
                                   struct job_fault *fault)
{
    const struct logs_operation *tables[] = {logs_operations, logs_metric_operations};
    json_error_t error;
    json_t *reply = NULL, *json = json_loads(request, 0, &error);
    if (json == NULL)
        fail_msg("%s: %s", request, error.text);
    *fault = (struct job_fault){0};
    for (size_t i = 0; i < 2; i++) {
        for (const struct logs_operation *row = tables[i]; row->name != NULL; row++) {
            if (strcmp(row->name, name) == 0 &&
                row->run(fixture->logs, json, &reply, fault) != SHOAL_OK)
                fail_msg("%s: %s", name, base_error_text());
        }
    }
    json_decref(json);
    assert_true((reply != NULL) != (fault->type != NULL));
    return reply;
}

static inline json_t *fixture_reply(struct fixture *fixture, const char *name, const char *request)
{
    struct job_fault fault;
    json_t *reply = fixture_call(fixture, name, request, &fault);
    if (reply == NULL)
        fail_msg("%s %s: %s: %s", name, request, fault.type, fault.text);
    return reply;
}

static inline void fixture_refused(struct fixture *fixture, const char *name, const char *request,
                                   const char *type, const char *text)
{
    struct job_fault fault;
    json_t *reply = fixture_call(fixture, name, request, &fault);
    assert_null(reply);
    assert_string_equal(fault.type, type);
    if (strstr(fault.text, text) == NULL)
        fail_msg("'%s' has no '%s'", fault.text, text);
}

/* The texts of a list's member, joined by blanks; the caller frees it. */
static inline char *fixture_join(const json_t *list, const char *member)
{
    char *text = NULL;
    size_t bytes = 0, i;
    const json_t *item;
    FILE *out = open_memstream(&text, &bytes);
    json_array_foreach((json_t *)list, i, item)
    {
        fprintf(out, "%s%s", i > 0 ? " " : "", json_string_value(json_object_get(item, member)));
    }
    fclose(out);
    return text;
}

static inline void fixture_joined(const json_t *list, const char *member, const char *expected)
{
    char *text = fixture_join(list, member);
    assert_string_equal(text, expected);
    free(text);
}

#endif
