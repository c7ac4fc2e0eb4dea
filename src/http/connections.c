/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connections.c: deadlines of heads, and clients that went.
 *
 * A connection is shut down here and closed by its own thread, which takes it off the list before:
 * under the lock its descriptor is always its own.
 *
 * libmicrohttpd waits for edges. Where a client's last bytes and its end come while the thread is
 * busy, both are one edge; a read that takes fewer bytes than it could is the last one, and the end
 * is never read. The connection would stay until it has been idle for too long, and its request
 * with it. So whoever finds an end that nothing stands before shuts the connection down for
 * reading, which takes nothing from it and is an edge.
 */
#include "http/connections.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#define LOOK_MS 250

struct connection {
    struct connections *all;
    int fd;
    bool is_between; /* two requests */
    bool is_ended;   /* by the client; the thread was woken for it */
    int64_t due_ns;  /* BASE_NO_DEADLINE while a request is under way */
    struct connection *previous, *next;
};

struct connections {
    pthread_mutex_t lock;
    pthread_cond_t stop_came;
    bool stops, has_thread;
    pthread_t thread;
    int64_t head_ms, between_ms;
    struct connection *first;
    unsigned count;
};

static void end_late(struct connection *connection, int64_t now_ns)
{
    if (connection->due_ns > now_ns)
        return;
    base_log(BASE_LOG_INFO, "http: the head of a request took too long; closing");
    shutdown(connection->fd, SHUT_RDWR);
    connection->due_ns = BASE_NO_DEADLINE;
}

static void wake_ended(struct connection *connection)
{
    char next;
    if (connection->is_ended || recv(connection->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        return;
    shutdown(connection->fd, SHUT_RD);
    connection->is_ended = true;
}

static void look(struct connections *connections)
{
    int64_t now_ns = base_now_ns();
    for (struct connection *each = connections->first; each != NULL; each = each->next) {
        end_late(each, now_ns);
        wake_ended(each);
    }
}

static void *watch(void *user)
{
    struct connections *connections = user;
    pthread_mutex_lock(&connections->lock);
    while (!connections->stops) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * BASE_NS_PER_MS;
        until.tv_sec += until.tv_nsec / BASE_NS_PER_S;
        until.tv_nsec %= BASE_NS_PER_S;
        pthread_cond_timedwait(&connections->stop_came, &connections->lock, &until);
        look(connections);
    }
    pthread_mutex_unlock(&connections->lock);
    return NULL;
}

enum shoal_status connections_create(const struct http_limits *limits, struct connections **out)
{
    struct connections *connections;
    TRY(BASE_NEW(&connections, "a list of connections"));
    pthread_mutex_init(&connections->lock, NULL);
    pthread_cond_init(&connections->stop_came, NULL);
    connections->head_ms = limits->head_ms;
    connections->between_ms = limits->head_ms + (int64_t)limits->idle_s * 1000;
    int error = pthread_create(&connections->thread, NULL, watch, connections);
    if (error != 0) {
        connections_free(connections);
        return base_error_errno(SHOAL_ERR_SYSTEM, error, "no thread for the server");
    }
    connections->has_thread = true;
    *out = connections;
    return SHOAL_OK;
}

void connections_free(struct connections *connections)
{
    if (connections == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    connections->stops = true;
    pthread_cond_signal(&connections->stop_came);
    pthread_mutex_unlock(&connections->lock);
    if (connections->has_thread)
        pthread_join(connections->thread, NULL);
    pthread_cond_destroy(&connections->stop_came);
    pthread_mutex_destroy(&connections->lock);
    base_free(connections);
}

static void came(struct connections *connections, struct MHD_Connection *handle, void **own)
{
    struct connection *connection;
    *own = NULL;
    if (BASE_NEW(&connection, "a connection") != SHOAL_OK)
        return; /* it is served all the same, without a deadline for its heads */
    connection->all = connections;
    connection->fd = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection->due_ns = base_deadline_ns(connections->head_ms);
    *own = connection;
    pthread_mutex_lock(&connections->lock);
    connection->next = connections->first;
    if (connection->next != NULL)
        connection->next->previous = connection;
    connections->first = connection;
    connections->count++;
    pthread_mutex_unlock(&connections->lock);
}

static void went(struct connections *connections, struct connection *connection)
{
    if (connection == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        connections->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    connections->count--;
    pthread_mutex_unlock(&connections->lock);
    base_free(connection);
}

void connections_notify(void *user, struct MHD_Connection *connection, void **own,
                        enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        came(user, connection, own);
    else
        went(user, *own);
}

static void due_set(struct MHD_Connection *handle, bool is_between)
{
    struct connection *connection =
        MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (connection == NULL)
        return;
    struct connections *all = connection->all;
    pthread_mutex_lock(&all->lock);
    connection->is_between = is_between;
    connection->due_ns = is_between ? base_deadline_ns(all->between_ms) : BASE_NO_DEADLINE;
    pthread_mutex_unlock(&all->lock);
}

void connections_head_came(struct MHD_Connection *connection)
{
    due_set(connection, false);
}

void connections_request_over(struct MHD_Connection *connection)
{
    due_set(connection, true);
}

unsigned connections_count(struct connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    unsigned count = connections->count;
    pthread_mutex_unlock(&connections->lock);
    return count;
}

void connections_end_idlest(struct connections *connections)
{
    struct connection *idlest = NULL;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *each = connections->first; each != NULL; each = each->next)
        if (each->is_between && (idlest == NULL || each->due_ns < idlest->due_ns))
            idlest = each;
    if (idlest != NULL) {
        shutdown(idlest->fd, SHUT_RDWR);
        idlest->is_between = false;
        idlest->due_ns = BASE_NO_DEADLINE;
    }
    pthread_mutex_unlock(&connections->lock);
}

void connections_end_all(struct connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    for (struct connection *each = connections->first; each != NULL; each = each->next)
        shutdown(each->fd, SHUT_RDWR);
    pthread_mutex_unlock(&connections->lock);
}
