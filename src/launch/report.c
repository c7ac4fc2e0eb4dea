/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: what a launch says about its ranks: lines, events, and the words for failures. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/status.h"
#include "launch/job.h"

static const struct launch_host *host_of(const struct job *job, int rank)
{
    return job->ranks[rank - job->first_rank].connection->host;
}

enum shoal_status launch_job_note(struct job *job, const char *format, ...)
{
    char text[JOB_TEXT_BYTES];
    va_list arguments;
    if (job->options->quiet)
        return SHOAL_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return launch_sink_note(job->err, text);
}

static const char *word_of(const struct job *job, int rank)
{
    return job->ranks[rank - job->first_rank].out.is_server ? "server" : "rank";
}

static int number_of(const struct job *job, int rank)
{
    return job->ranks[rank - job->first_rank].out.rank;
}

/* {"type":"...","rank":N,"host":"..." and what format says. */
static enum shoal_status put_event(struct job *job, const char *type, int rank, const char *rest)
{
    struct launch_bytes event = {0};
    const char *host = host_of(job, rank)->name;
    enum shoal_status status =
        launch_put_format(&event, "{\"type\":\"%s\",\"%s\":%d,\"host\":", type, word_of(job, rank),
                          number_of(job, rank));
    if (status == SHOAL_OK)
        status = launch_json_text(&event, host, strlen(host));
    if (status == SHOAL_OK)
        status = launch_put_format(&event, ",%s}\n", rest);
    if (status == SHOAL_OK)
        status = launch_sink_raw(job->out, launch_bytes_front(&event), launch_bytes_count(&event));
    launch_bytes_release(&event);
    return status;
}

enum shoal_status launch_job_report_start(struct job *job, int rank)
{
    char rest[64];
    if (job->options->form != LAUNCH_LINES_JSON)
        return SHOAL_OK;
    snprintf(rest, sizeof(rest), "\"pid\":%d", (int)job->ranks[rank - job->first_rank].pid);
    return put_event(job, "start", rank, rest);
}

enum shoal_status launch_job_report_exit(struct job *job, int rank, int wait_status)
{
    char rest[96];
    if (job->options->form != LAUNCH_LINES_JSON)
        return SHOAL_OK;
    if (WIFSIGNALED(wait_status))
        snprintf(rest, sizeof(rest), "\"code\":%d,\"signal\":\"%s\"", launch_exit_code(wait_status),
                 launch_signal_name(WTERMSIG(wait_status)));
    else
        snprintf(rest, sizeof(rest), "\"code\":%d", WEXITSTATUS(wait_status));
    return put_event(job, "exit", rank, rest);
}

static enum shoal_status put_end_event(struct job *job, int exit_code)
{
    struct launch_bytes event = {0};
    const char *text = job->failure.text;
    enum shoal_status status =
        launch_put_format(&event, "{\"type\":\"end\",\"code\":%d,\"text\":", exit_code);
    if (status == SHOAL_OK)
        status = launch_json_text(&event, text, strlen(text));
    if (status == SHOAL_OK)
        status = launch_put_format(&event, "}\n");
    if (status == SHOAL_OK)
        status = launch_sink_raw(job->out, launch_bytes_front(&event), launch_bytes_count(&event));
    launch_bytes_release(&event);
    return status;
}

enum shoal_status launch_job_report_end(struct job *job, int exit_code)
{
    if (job->options->form == LAUNCH_LINES_JSON)
        TRY(put_end_event(job, exit_code));
    if (job->failure.set && job->last != NULL)
        TRY(launch_sink_note(job->last, job->failure.text));
    return SHOAL_OK;
}

void launch_job_describe_exit(const struct job *job, int rank, int wait_status, const char *cause,
                              char *out, size_t capacity)
{
    const struct job_rank *own = &job->ranks[rank - job->first_rank];
    char how[128], passed[96] = "";
    launch_exit_describe(wait_status, how, sizeof(how));
    if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == job->passed_signal)
        snprintf(passed, sizeof(passed), ", which was passed on to all ranks");
    snprintf(out, capacity, "%s %d on host %s (pid %d) %s%s%s%s%s%s", word_of(job, rank),
             number_of(job, rank), own->connection->host->name, (int)own->pid, how, passed,
             *cause ? "; " : "", cause, *own->err.last ? "; its last line on stderr: " : "",
             own->err.last);
}

/* "ranks 2 to 3"; of a host without ranks "server 1". */
static void describe_ranks(const struct launch_host *host, char *out, size_t capacity)
{
    bool serves = host->rank_count == 0;
    const char *word = serves ? "server" : "rank";
    int first = serves ? host->first_server : host->first_rank;
    int last = first + (serves ? host->server_count : host->rank_count) - 1;
    if (first == last)
        snprintf(out, capacity, "%s %d", word, last);
    else
        snprintf(out, capacity, "%ss %d to %d", word, first, last);
}

/* It never was an agent: what its command said, on both streams, tells most. */
static void describe_unusable(const struct launch_connection *connection, const char *command,
                              const char *how, char *out, size_t capacity)
{
    char hint[640] = "", printed[LAUNCH_WORDS_BYTES];
    int code = launch_exit_code(connection->wait_status);
    if (code == LAUNCH_EXIT_NOT_FOUND || code == LAUNCH_EXIT_NOT_EXECUTABLE)
        snprintf(hint, sizeof(hint), "; is shoal there as %s? (--remote-shoal names its path)",
                 connection->command.words[connection->command.count - 2]);
    launch_connection_printed(connection, printed, sizeof(printed));
    snprintf(out, capacity, "host %s cannot be used: `%s` %s%s%s%s%s%s", connection->host->name,
             command, how, *connection->last_words ? ": " : "", connection->last_words,
             *printed ? "; it printed: " : "", printed, hint);
}

void launch_job_describe_lost(const struct launch_connection *connection, char *out,
                              size_t capacity)
{
    char how[128], command[512], ranks[64];
    launch_exit_describe(connection->wait_status, how, sizeof(how));
    launch_agent_command_describe(&connection->command, command, sizeof(command));
    describe_ranks(connection->host, ranks, sizeof(ranks));
    if (connection->phase == LAUNCH_PHASE_CONNECTING)
        describe_unusable(connection, command, how, out, capacity);
    else
        snprintf(out, capacity, "the agent on host %s (%s) is lost: `%s` %s%s%s",
                 connection->host->name, ranks, command, how, *connection->last_words ? ": " : "",
                 connection->last_words);
}

void launch_job_describe_late(const struct job *job, enum launch_phase phase, char *out,
                              size_t capacity)
{
    size_t length = 0;
    *out = '\0';
    for (int i = 0; i < job->connection_count && length + 1 < capacity; i++) {
        if (job->connections[i].phase >= phase)
            continue;
        snprintf(out + length, capacity - length, "%s%s", length > 0 ? ", " : "",
                 job->connections[i].host->name);
        length = strlen(out);
    }
}
