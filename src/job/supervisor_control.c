/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor_control.c: the supervisor's socket. Few clients, short lines: one that sends too much,
 * or takes its answers too slowly, is dropped.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "job/supervisor_state.h"
#include "launch/process.h"

static const char *const phase_names[] = {"starting", "running", "ending", "ended"};
static const char *const instance_names[] = {"prepared", "running", "ended"};

/* ---- commands ---- */

static json_t *status_json(const struct supervisor *supervisor)
{
    json_t *states = json_array();
    int count = supervisor->instances != NULL ? job_instances_count(supervisor->instances) : 0;
    int64_t elapsed_ns = supervisor->started_ns > 0 ? base_now_ns() - supervisor->started_ns : 0;
    for (int i = 0; i < count; i++)
        json_array_append_new(
            states, json_string(instance_names[job_instances_state(supervisor->instances, i)]));
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "state", phase_names[supervisor->phase], "pid",
                     (json_int_t)getpid(), "started_ms", (json_int_t)supervisor->record.started_ms,
                     "elapsed_s", (json_int_t)(elapsed_ns / BASE_NS_PER_S), "instances", states);
}

static json_t *error_json(const char *text)
{
    return json_pack("{s:s}", "error", text);
}

static json_t *limit(struct supervisor *supervisor, const json_t *request)
{
    const json_t *seconds = json_object_get(request, "max_runtime_s");
    if (!json_is_integer(seconds) || json_integer_value(seconds) < 1 ||
        json_integer_value(seconds) > JOB_RUNTIME_S_MAX)
        return error_json("\"max_runtime_s\" must be 1 second to 28 days");
    supervisor_set_limit(supervisor, json_integer_value(seconds));
    return status_json(supervisor);
}

static json_t *obey(struct supervisor *supervisor, const json_t *request)
{
    const char *command = json_string_value(json_object_get(request, "command"));
    if (command == NULL)
        return error_json("a command is {\"command\": \"status\"}, or stop, kill, limit");
    if (strcmp(command, "limit") == 0)
        return limit(supervisor, request);
    if (strcmp(command, "stop") == 0)
        supervisor_end(supervisor, JOB_STOPPED, supervisor->description->grace_s);
    else if (strcmp(command, "kill") == 0)
        supervisor_kill(supervisor);
    else if (strcmp(command, "status") != 0)
        return error_json("there is no such command; there are status, stop, kill, limit");
    return status_json(supervisor);
}

/* ---- clients ---- */

static void answer_line(struct supervisor_client *client, const char *line, size_t bytes)
{
    json_error_t error;
    json_t *request = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
    json_t *answer = request != NULL ? obey(client->supervisor, request) : error_json(error.text);
    char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;
    json_decref(request);
    json_decref(answer);
    bool sent = false;
    if (text != NULL) {
        size_t text_bytes = strlen(text);
        text[text_bytes] = '\n'; /* in place of the NUL */
        sent = send(client->fd, text, text_bytes + 1, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)text_bytes + 1;
    }
    free(text);
    if (!sent)
        launch_fd_close(&client->fd);
}

static void take_lines(struct supervisor_client *client)
{
    char *end;
    while (client->fd >= 0 && (end = memchr(client->line, '\n', client->line_bytes)) != NULL) {
        size_t bytes = (size_t)(end - client->line);
        answer_line(client, client->line, bytes);
        client->line_bytes -= bytes + 1;
        memmove(client->line, end + 1, client->line_bytes);
    }
}

static enum shoal_status client_ready(void *owner, short events)
{
    struct supervisor_client *client = owner;
    (void)events;
    ssize_t got = recv(client->fd, client->line + client->line_bytes,
                       sizeof(client->line) - client->line_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return SHOAL_OK;
    if (got <= 0) { /* gone, or a line that is too long */
        launch_fd_close(&client->fd);
        return SHOAL_OK;
    }
    client->line_bytes += (size_t)got;
    take_lines(client);
    return SHOAL_OK;
}

static enum shoal_status listen_ready(void *owner, short events)
{
    struct supervisor *supervisor = owner;
    (void)events;
    int fd = accept4(supervisor->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (int i = 0; fd >= 0 && i < SUPERVISOR_CLIENTS_MAX; i++) {
        struct supervisor_client *client = &supervisor->clients[i];
        if (client->fd >= 0)
            continue;
        client->supervisor = supervisor;
        client->fd = fd;
        client->line_bytes = 0;
        return SHOAL_OK;
    }
    if (fd >= 0)
        close(fd);
    return SHOAL_OK;
}

enum shoal_status supervisor_listen(struct supervisor *supervisor)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SUPERVISOR_SOCKET_FILE};
    for (int i = 0; i < SUPERVISOR_CLIENTS_MAX; i++)
        supervisor->clients[i].fd = -1;
    unlink(SUPERVISOR_SOCKET_FILE);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0077);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                 listen(fd, SUPERVISOR_CLIENTS_MAX) == 0;
    int error_number = errno;
    umask(before);
    if (!bound) {
        if (fd >= 0)
            close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "making the socket %s/%s",
                                supervisor->folder, SUPERVISOR_SOCKET_FILE);
    }
    supervisor->listen_fd = fd;
    return SHOAL_OK;
}

enum shoal_status supervisor_watch_clients(struct supervisor *supervisor, struct launch_loop *loop)
{
    TRY(launch_loop_add(
        loop, (struct launch_watch){supervisor->listen_fd, POLLIN, listen_ready, supervisor}));
    for (int i = 0; i < SUPERVISOR_CLIENTS_MAX; i++) {
        struct supervisor_client *client = &supervisor->clients[i];
        if (client->fd >= 0)
            TRY(launch_loop_add(loop,
                                (struct launch_watch){client->fd, POLLIN, client_ready, client}));
    }
    return SHOAL_OK;
}

void supervisor_close_clients(struct supervisor *supervisor)
{
    if (supervisor->listen_fd < 0)
        return;
    unlink(SUPERVISOR_SOCKET_FILE);
    launch_fd_close(&supervisor->listen_fd);
    for (int i = 0; i < SUPERVISOR_CLIENTS_MAX; i++)
        launch_fd_close(&supervisor->clients[i].fd);
}
