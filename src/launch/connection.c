/* SPDX-License-Identifier: Apache-2.0 */
/* connection.c: the launcher's end of one agent. */
#include "launch/connection.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define READ_BYTES         65536
#define GREETING_BYTES_MAX 65536 /* of a login shell's own words before the greeting */
#define OWN_PROGRAM        "/proc/self/exe"

/* Without a terminal an agent that needs a password or an answer says so and ends. With one it
 * would be stopped as soon as it asks, since it stands in the background. */
enum shoal_status launch_connection_open(struct launch_connection *connection, const char *pattern,
                                         const char *shoal,
                                         const struct launch_connection_events *events)
{
    const struct launch_host *host = connection->host;
    connection->events = *events;
    connection->patience_ns = BASE_NO_DEADLINE;
    connection->process = (struct launch_process){-1, -1, -1, -1};
    TRY(launch_agent_command_make(connection->local ? NULL : pattern, host->name, shoal,
                                  &connection->command));
    char **words = connection->command.words;
    struct launch_program program = {.path = connection->local ? OWN_PROGRAM : words[0],
                                     .search_path = !connection->local,
                                     .argv = words,
                                     .input = true,
                                     .session = !connection->local,
                                     .death_signal = SIGTERM};
    int exec_errno = 0;
    enum shoal_status status = launch_process_start(&program, &connection->process, &exec_errno);
    if (status != SHOAL_OK)
        return base_error_context(status, "host %s: the agent's command", host->name);
    return SHOAL_OK;
}

/* ---- what comes ---- */

/* Skips what stands before the greeting. */
static enum shoal_status greeting_find(struct launch_connection *connection)
{
    struct launch_bytes *in = &connection->in;
    const unsigned char *front = launch_bytes_front(in);
    size_t count = launch_bytes_count(in), length = strlen(LAUNCH_GREETING);
    const unsigned char *found =
        count >= length ? memmem(front, count, LAUNCH_GREETING, length) : NULL;
    if (found != NULL) {
        connection->greeted = true;
        launch_bytes_take(in, (size_t)(found - front) + length);
    } else if (count > GREETING_BYTES_MAX) {
        return base_error(SHOAL_ERR_FORMAT, "host %s: what answers is no agent of this version",
                          connection->host->name);
    }
    return SHOAL_OK;
}

static enum shoal_status messages_take(struct launch_connection *connection)
{
    if (!connection->greeted)
        TRY(greeting_find(connection));
    for (bool found = connection->greeted; found;) {
        struct launch_message message;
        enum shoal_status status = launch_message_take(&connection->in, &message, &found);
        if (status == SHOAL_OK && found)
            status = connection->events.message(connection->events.user, connection, &message);
        if (status != SHOAL_OK)
            return base_error_context(status, "host %s", connection->host->name);
    }
    return SHOAL_OK;
}

/* One read into `into`; *more false when there was nothing. Closes the descriptor at its end. */
static enum shoal_status bytes_read(int *fd, struct launch_bytes *into, bool *more)
{
    unsigned char *room = NULL;
    TRY(launch_bytes_room(into, READ_BYTES, &room));
    ssize_t count = read(*fd, room, READ_BYTES);
    *more = count > 0;
    if (count > 0)
        launch_bytes_grew(into, (size_t)count);
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
        launch_fd_close(fd);
    return SHOAL_OK;
}

static enum shoal_status out_read(struct launch_connection *connection, bool *more)
{
    TRY(bytes_read(&connection->process.out, &connection->in, more));
    return *more ? messages_take(connection) : SHOAL_OK;
}

static enum shoal_status out_readable(void *owner, short events)
{
    bool more = false;
    (void)events;
    return out_read(owner, &more);
}

static enum shoal_status line_say(struct launch_connection *connection, size_t length)
{
    char *line = connection->last_words;
    const unsigned char *front = launch_bytes_front(&connection->saying);
    if (length >= LAUNCH_WORDS_BYTES)
        length = LAUNCH_WORDS_BYTES - 1;
    while (length > 0 && (front[length - 1] == '\r' || front[length - 1] == '\n'))
        length--;
    if (length == 0)
        return SHOAL_OK;
    memcpy(line, front, length);
    line[length] = '\0';
    return connection->events.said(connection->events.user, connection, line);
}

/* The lines that are whole; when no more can come, the rest too. */
static enum shoal_status lines_say(struct launch_connection *connection)
{
    struct launch_bytes *saying = &connection->saying;
    for (size_t count; (count = launch_bytes_count(saying)) > 0;) {
        const unsigned char *front = launch_bytes_front(saying);
        const unsigned char *end = memchr(front, '\n', count);
        if (end == NULL && connection->process.err >= 0)
            return SHOAL_OK;
        size_t length = end != NULL ? (size_t)(end - front) + 1 : count;
        TRY(line_say(connection, length));
        launch_bytes_take(saying, length);
    }
    return SHOAL_OK;
}

static enum shoal_status err_read(struct launch_connection *connection, bool *more)
{
    TRY(bytes_read(&connection->process.err, &connection->saying, more));
    return lines_say(connection);
}

static enum shoal_status err_readable(void *owner, short events)
{
    bool more = false;
    (void)events;
    return err_read(owner, &more);
}

static enum shoal_status in_writable(void *owner, short events)
{
    struct launch_connection *connection = owner;
    (void)events;
    ssize_t count = write(connection->process.in, launch_bytes_front(&connection->out),
                          launch_bytes_count(&connection->out));
    if (count >= 0)
        launch_bytes_take(&connection->out, (size_t)count);
    else if (errno != EAGAIN && errno != EINTR)
        launch_fd_close(&connection->process.in); /* its end will be seen as the process's */
    return SHOAL_OK;
}

enum shoal_status launch_connection_watch(struct launch_connection *connection,
                                          struct launch_loop *loop, bool read_messages)
{
    const struct launch_process *process = &connection->process;
    if (read_messages && process->out >= 0)
        TRY(launch_loop_add(loop,
                            (struct launch_watch){process->out, POLLIN, out_readable, connection}));
    if (process->err >= 0)
        TRY(launch_loop_add(loop,
                            (struct launch_watch){process->err, POLLIN, err_readable, connection}));
    if (process->in >= 0 && launch_bytes_count(&connection->out) > 0)
        TRY(launch_loop_add(loop,
                            (struct launch_watch){process->in, POLLOUT, in_writable, connection}));
    return SHOAL_OK;
}

enum shoal_status launch_connection_look(struct launch_connection *connection)
{
    if (connection->ended || connection->process.pid < 0)
        return SHOAL_OK;
    if (waitpid(connection->process.pid, &connection->wait_status, WNOHANG) <= 0)
        return SHOAL_OK;
    connection->ended = true;
    for (bool more = true; more && connection->process.out >= 0;)
        TRY(out_read(connection, &more));
    for (bool more = true; more && connection->process.err >= 0;)
        TRY(err_read(connection, &more));
    launch_process_close(&connection->process);
    return lines_say(connection);
}

void launch_connection_printed(const struct launch_connection *connection, char *out,
                               size_t capacity)
{
    const char *front = (const char *)launch_bytes_front(&connection->in);
    size_t end = connection->greeted ? 0 : launch_bytes_count(&connection->in);
    while (end > 0 && strchr("\r\n", front[end - 1]) != NULL)
        end--;
    size_t begin = end;
    while (begin > 0 && front[begin - 1] != '\n')
        begin--;
    snprintf(out, capacity, "%.*s", (int)(end - begin), end > 0 ? front + begin : "");
}

/* ---- what goes ---- */

enum shoal_status launch_connection_send(struct launch_connection *connection,
                                         enum launch_message_type type, uint32_t value)
{
    return launch_message_put(&connection->out, type, 0, value, NULL);
}

void launch_connection_kill(struct launch_connection *connection, int signal_number)
{
    if (!connection->ended && connection->process.pid > 0)
        kill(-connection->process.pid, signal_number);
}

void launch_connection_release(struct launch_connection *connection)
{
    launch_process_close(&connection->process);
    launch_agent_command_release(&connection->command);
    launch_bytes_release(&connection->in);
    launch_bytes_release(&connection->out);
    launch_bytes_release(&connection->saying);
}
