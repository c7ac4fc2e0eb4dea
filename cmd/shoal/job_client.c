/* SPDX-License-Identifier: Apache-2.0 */
/* job_client.c: calls of the job service, and what its commands print alike. */
#include "job_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arguments.h"
#include "base/status.h"

#define ATTEMPTS   3 /* people wait for it */
#define TEXTS      4
#define TEXT_BYTES 48

/* ---- calls ---- */

static enum shoal_status connect_to(struct job_client *client, const char *service,
                                    struct http_client **out)
{
    struct http_endpoint endpoint;
    struct http_endpoint_wish wish = client->wish;
    if (*out != NULL)
        return SHOAL_OK;
    wish.service = service;
    enum shoal_status status = http_endpoint_find(&wish, &endpoint);
    if (status != SHOAL_OK) /* SHOAL_ERR_STATE: no service runs where one should */
        return status == SHOAL_ERR_STATE ? SHOAL_ERR_PEER_UNREACHABLE : status;
    return http_client_create(&(struct http_client_options){.endpoint = &endpoint,
                                                            .service = service,
                                                            .attempts = ATTEMPTS},
                              out);
}

void job_client_release(struct job_client *client)
{
    http_client_free(client->jobs);
    http_client_free(client->logs);
}

void job_client_reset(struct job_client *client)
{
    job_client_release(client);
    client->jobs = client->logs = NULL;
}

bool job_client_is_lost(enum shoal_status status)
{
    return status == SHOAL_ERR_PEER_UNREACHABLE || status == SHOAL_ERR_PEER_LOST ||
           status == SHOAL_ERR_TIMEOUT;
}

/* Reading is safe to repeat; creating and stopping say so themselves if they are. */
static bool is_reading(const char *target)
{
    const char *operation = strchr(target, '.') + 1;
    return strncmp(operation, "Create", 6) != 0;
}

static enum shoal_status invoke(struct http_client *http, const char *target, const json_t *request,
                                json_t **reply)
{
    struct http_answer answer = {0};
    json_error_t error;
    char *body = json_dumps(request, JSON_COMPACT);
    if (body == NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s: an argument is not UTF-8", target);
    enum shoal_status status = http_client_invoke(http, target, body, is_reading(target), &answer);
    free(body);
    bool is_missing = strcmp(answer.code, "ResourceNotFoundException") == 0 ||
                      strcmp(answer.code, "ResourceNotFound") == 0 ||
                      strstr(answer.text, "Requested resource not found") != NULL;
    if (status == SHOAL_ERR_PEER_REFUSED && is_missing)
        status = base_error(SHOAL_ERR_STATE, "%s", answer.text);
    else if (status == SHOAL_ERR_PEER_REFUSED && answer.text[0] != '\0')
        status = base_error(SHOAL_ERR_PEER_REFUSED, "%s: %s", answer.code, answer.text);
    if (status == SHOAL_OK && reply != NULL) {
        *reply = json_loads(http_answer_text(&answer), 0, &error);
        if (*reply == NULL)
            status =
                base_error(SHOAL_ERR_FORMAT, "%s: the reply is no JSON: %s", target, error.text);
    }
    http_answer_free(&answer);
    return status;
}

enum shoal_status job_client_call(struct job_client *client, const char *target, json_t *request,
                                  json_t **reply)
{
    bool is_logs = strncmp(target, "Logs_", 5) == 0;
    struct http_client **http = is_logs ? &client->logs : &client->jobs;
    enum shoal_status status = connect_to(client, is_logs ? "logs" : "sagemaker", http);
    if (status == SHOAL_OK && request == NULL)
        status = base_error(SHOAL_ERR_FORMAT, "%s: an argument is not UTF-8", target);
    if (status == SHOAL_OK)
        status = invoke(*http, target, request, reply);
    json_decref(request);
    return status;
}

enum shoal_status job_client_describe(struct job_client *client, const char *name, json_t **reply)
{
    enum shoal_status status = job_client_call(client, "SageMaker.DescribeTrainingJob",
                                               json_pack("{s:s}", "TrainingJobName", name), reply);
    if (status == SHOAL_ERR_STATE && client->jobs != NULL)
        return base_error(status, "there is no job '%s' (see shoal jobs)", name);
    return status;
}

enum shoal_status job_client_store(const struct job_client *client,
                                   const struct s3_client_options *options, struct s3_client **out)
{
    struct http_endpoint endpoint;
    struct http_endpoint_wish wish = client->wish;
    struct s3_client_options all = options != NULL ? *options : (struct s3_client_options){0};
    wish.service = "s3";
    TRY(http_endpoint_find(&wish, &endpoint));
    all.endpoint = &endpoint;
    return s3_client_create(&all, out) == S3_OK ? SHOAL_OK : SHOAL_ERR_PEER_REFUSED;
}

/* ---- texts ---- */

static char *text_next(void)
{
    static _Thread_local char texts[TEXTS][TEXT_BYTES];
    static _Thread_local unsigned next;
    return texts[next++ % TEXTS];
}

const char *job_text(const json_t *reply, const char *name)
{
    const char *text = json_string_value(json_object_get(reply, name));
    return text != NULL ? text : "";
}

const char *job_time_text(double epoch_s)
{
    char *text = text_next();
    time_t seconds = (time_t)epoch_s;
    struct tm parts;
    text[0] = '\0';
    if (epoch_s > 0 && localtime_r(&seconds, &parts) != NULL)
        strftime(text, TEXT_BYTES, "%Y-%m-%d %H:%M:%S", &parts);
    return text;
}

const char *job_duration_text(double seconds)
{
    char *text = text_next();
    long whole = (long)seconds;
    if (seconds < 10)
        snprintf(text, TEXT_BYTES, "%.1f s", seconds > 0 ? seconds : 0);
    else if (whole < 60)
        snprintf(text, TEXT_BYTES, "%ld s", whole);
    else if (whole < 3600)
        snprintf(text, TEXT_BYTES, "%ld min %02ld s", whole / 60, whole % 60);
    else
        snprintf(text, TEXT_BYTES, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
    return text;
}

bool job_has_ended(const char *status)
{
    return strcmp(status, "Completed") == 0 || strcmp(status, "Failed") == 0 ||
           strcmp(status, "Stopped") == 0;
}

int job_exit(const char *status)
{
    if (strcmp(status, "Failed") == 0)
        return 1;
    return strcmp(status, "Stopped") == 0 ? EXIT_JOB_STOPPED : 0;
}
