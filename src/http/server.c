/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.c: the daemons, and the way of a request through them.
 *
 * The door (door.h) accepts connections and gives each to one of two daemons, which differ in
 * nothing but TLS. libmicrohttpd reads them on a pool of threads, each with an epoll set, and calls
 * `access` for the head, for each piece of the body, and once more behind it. A reply can be queued
 * for the head or behind the body: one that is made in between waits while the rest is dropped. A
 * reply to the head alone closes the connection, and a client that is still sending may see that
 * before the reply; so it is given at once only to those who wait for 100-continue or announce too
 * much to drop.
 */
#include "http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/connections.h"
#include "http/door.h"
#include "http/refusal.h"
#include "http/request.h"
#include "http/tls.h"

#define ADDRESS_BYTES  64
#define BACKLOG        512
#define THREADS_MIN    4
#define THREADS_MAX    32
#define DROPPED_MAX    (INT64_C(64) << 20)
#define STOP_LOOK_MS   20
#define POOL_BYTES_MIN (128u << 10)
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct http_server {
    struct http_options options;
    struct MHD_Daemon *plain, *secure; /* `secure`: NULL without TLS */
    struct connections *connections;
    struct tls *tls;
    struct door *door;
    int listener, port;
    char address[ADDRESS_BYTES];
    atomic_int under_way; /* requests whose head is whole */
    atomic_bool gives_up;
};

const struct http_limits *server_limits(const struct http_server *server)
{
    return &server->options.limits;
}

const struct http_keys *server_keys(const struct http_server *server)
{
    return server->options.keys;
}

bool server_gives_up(const struct http_server *server)
{
    return atomic_load(&server->gives_up);
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

int http_server_port(const struct http_server *server)
{
    return server->port;
}

/* ---- a request's way ---------------------------------------------------------------------------
 */

static void ran(struct http_request *request, enum shoal_status status)
{
    if (status != SHOAL_OK && !request->is_replied)
        request_failed(request, status);
}

static void handler_begin(struct http_request *request)
{
    const struct http_handler *handler = request->handler;
    request->begun = true;
    if (handler->begin != NULL)
        ran(request, handler->begin(request->user, request));
}

static enum shoal_status unknown_complete(void *user, struct http_request *request)
{
    (void)user;
    return http_reply_unknown(request);
}

/* Of services that nobody handles: they too are told only to those who may call. */
static const struct http_handler unknown_handler = {.complete = unknown_complete};

/* The head: up to `begin`, or to a refusal. */
static void head_run(struct http_request *request, const char *method)
{
    struct http_server *server = request->server;
    if (!request_read_head(request, method) || !request_authorize(request))
        return;
    request->handler = server->options.handlers[request->service];
    request->user = server->options.users[request->service];
    if (request->handler == NULL)
        request->handler = &unknown_handler;
    if (request->payload_kind != PAYLOAD_LATE || request->key == NULL)
        handler_begin(request);
    if (!request->is_replied)
        ran(request, body_open(request));
}

static enum MHD_Result queue(struct http_request *request)
{
    if (request->response == NULL)
        return MHD_NO; /* no memory even for an error */
    request->is_queued = true;
    return MHD_queue_response(request->connection, (unsigned)request->reply_status,
                              request->response);
}

/* Whether the reply to the head goes before the body. */
static bool replies_at_once(const struct http_request *request)
{
    const char *expect = http_request_header(request, "expect");
    return expect != NULL || request->announced > DROPPED_MAX;
}

static bool is_too_slow(const struct http_request *request)
{
    const struct http_limits *limits = server_limits(request->server);
    int64_t ms = (base_now_ns() - request->begin_ns) / BASE_NS_PER_MS - limits->body_grace_ms;
    return ms > 0 &&
           request->received / (limits->body_bytes_per_s > 0 ? limits->body_bytes_per_s : 1) <
               ms / 1000;
}

static enum MHD_Result piece_run(struct http_request *request, const char *data, size_t bytes)
{
    if (request->is_replied) {
        request->received += (int64_t)bytes;
    } else {
        enum shoal_status status = body_take(request, data, bytes);
        if (status == SHOAL_ERR_FORMAT && !request->is_replied)
            http_refuse(request, REFUSAL_BODY_FORM, base_error_text());
        else if (status == SHOAL_ERR_PEER_REFUSED && !request->is_replied)
            http_refuse(request, HTTP_WRONG_SIGNATURE, base_error_text());
        else
            ran(request, status);
    }
    /* Somewhat beyond the limit, so that who is told so still gets to read it. */
    bool is_over = request->received - DROPPED_MAX > server_limits(request->server)->body_bytes;
    if (!is_over && !is_too_slow(request))
        return MHD_YES;
    base_log(BASE_LOG_WARN, "request %s: its body is too %s; the connection is closed", request->id,
             is_over ? "long" : "slow");
    return MHD_NO;
}

/* A body that was collected before `begin` could say that it wants it streamed. */
static void late_begin(struct http_request *request)
{
    handler_begin(request);
    if (!request->is_replied && request->is_streamed)
        ran(request,
            request->handler->piece(request->user, request, http_text_string(&request->body),
                                    request->body.count));
}

static void whole_run(struct http_request *request)
{
    request->phase = REQUEST_WHOLE;
    if (request->is_replied || !body_close(request) || !request_authorize_body(request))
        return;
    if (!request->begun)
        late_begin(request);
    if (!request->is_replied)
        ran(request, request->handler->complete(request->user, request));
}

static void resumed_run(struct http_request *request)
{
    if (suspend_resumed(request))
        ran(request, request->handler->resumed(request->user, request));
    else if (request->is_given_up)
        http_refuse(request, REFUSAL_STOPPING, NULL);
    else
        request->wants_suspension = true;
}

/* The body is there, or the connection goes on behind a suspension. */
static enum MHD_Result end_run(struct http_request *request)
{
    if (request->phase != REQUEST_WHOLE)
        whole_run(request);
    else
        resumed_run(request);
    while (!request->is_replied && request->wants_suspension) {
        if (suspend_settle(request))
            return MHD_YES;
        resumed_run(request);
    }
    if (!request->is_replied)
        request_failed(request, base_error(SHOAL_ERR_INTERNAL, "the handler gave no reply"));
    return queue(request);
}

static enum MHD_Result access_run(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_bytes, void **own)
{
    (void)user, (void)url, (void)version;
    struct http_request *request = *own;
    if (request == NULL)
        return MHD_NO;
    if (request->phase == REQUEST_HEAD) {
        request->phase = REQUEST_BODY;
        atomic_fetch_add(&request->server->under_way, 1);
        connections_head_came(connection);
        head_run(request, method);
        return request->is_replied && replies_at_once(request) ? queue(request) : MHD_YES;
    }
    if (*data_bytes > 0) {
        size_t bytes = *data_bytes;
        *data_bytes = 0;
        return piece_run(request, data, bytes);
    }
    return request->is_queued ? MHD_YES : end_run(request);
}

/* The first sight of a request; what it returns becomes `own` above. */
static void *target_came(void *user, const char *target, struct MHD_Connection *connection)
{
    struct http_server *server = user;
    struct http_request *request = NULL;
    if (request_create(server, connection, target, &request) != SHOAL_OK) {
        base_log(BASE_LOG_WARN, "a request was dropped: %s", base_error_text());
        return NULL;
    }
    return request;
}

static void completed(void *user, struct MHD_Connection *connection, void **own,
                      enum MHD_RequestTerminationCode why)
{
    struct http_server *server = user;
    struct http_request *request = *own;
    (void)why;
    connections_request_over(connection);
    if (request == NULL)
        return;
    *own = NULL;
    int counted = request->phase != REQUEST_HEAD;
    request_release(request);
    atomic_fetch_sub(&server->under_way, counted);
}

static void notified(void *user, struct MHD_Connection *connection, void **own,
                     enum MHD_ConnectionNotificationCode what)
{
    struct http_server *server = user;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (what == MHD_CONNECTION_NOTIFY_STARTED && info != NULL && info->tls_session != NULL)
        tls_begin(server->tls, info->tls_session);
    connections_notify(server->connections, connection, own, what);
}

/* Paths and queries are decoded by request.c, which needs them as they were sent. */
static size_t keep_escapes(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user, (void)connection;
    return strlen(text);
}

static void daemon_log(void *user, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void daemon_log(void *user, const char *format, va_list arguments)
{
    char text[512];
    (void)user;
    vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    base_log(BASE_LOG_DEBUG, "http: %s", text);
}

/* ---- start and stop ----------------------------------------------------------------------------
 */

static enum shoal_status address_find(const struct http_options *options, struct addrinfo **out)
{
    char port[16];
    snprintf(port, sizeof(port), "%d", options->port);
    bool is_any = options->host[0] == '\0' || strcmp(options->host, "*") == 0;
    struct addrinfo wish = {.ai_family = is_any ? AF_INET : AF_UNSPEC,
                            .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int result = getaddrinfo(is_any ? NULL : options->host, port, &wish, out);
    if (result != 0)
        return base_error(SHOAL_ERR_SYSTEM, "cannot listen on %s:%d: %s", options->host,
                          options->port, gai_strerror(result));
    return SHOAL_OK;
}

static enum shoal_status address_read(struct http_server *server)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(server->listener, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "the socket has no address");
    bool is_v6 = address.ss_family == AF_INET6;
    sscanf(port, "%d", &server->port);
    snprintf(server->address, sizeof(server->address), "%s%.45s%s:%d", is_v6 ? "[" : "", host,
             is_v6 ? "]" : "", server->port);
    return SHOAL_OK;
}

static enum shoal_status listen_at(struct http_server *server, const struct addrinfo *address)
{
    const int on = 1;
    server->listener = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->listener < 0 ||
        setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(server->listener, address->ai_addr, address->ai_addrlen) != 0 ||
        listen(server->listener, BACKLOG) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                "cannot listen on %s:%d (choose another address or port, or end "
                                "who has it)",
                                server->options.host, server->options.port);
    return address_read(server);
}

static enum shoal_status listener_open(struct http_server *server)
{
    struct addrinfo *address;
    TRY(address_find(&server->options, &address));
    enum shoal_status status = listen_at(server, address);
    freeaddrinfo(address);
    return status;
}

static unsigned thread_count(const struct http_limits *limits)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = limits->threads > 0 ? limits->threads : 2 * (unsigned)(cores > 0 ? cores : 1);
    unsigned least = limits->threads > 0 ? 1 : THREADS_MIN;
    return count < least ? least : count > THREADS_MAX ? THREADS_MAX : count;
}

/* The daemons get connections from the door, which keeps count of them: their own limit is there to
 * be never reached, although each thread has but its share of it. */
static enum shoal_status daemon_start(struct http_server *server, bool is_tls,
                                      struct MHD_Daemon **out)
{
    const struct http_limits *limits = &server->options.limits;
    unsigned threads = thread_count(limits);
    size_t pool_bytes = 2 * limits->head_bytes;
    struct MHD_OptionItem secure[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, TLS_PRIORITIES},
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)tls_certificate},
        {MHD_OPTION_END, 0, NULL},
    };
    *out = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
            MHD_USE_ERROR_LOG | (is_tls ? MHD_USE_TLS : 0),
        0, NULL, NULL, access_run, server, MHD_OPTION_EXTERNAL_LOGGER, daemon_log, NULL,
        MHD_OPTION_THREAD_POOL_SIZE, threads, MHD_OPTION_CONNECTION_LIMIT,
        2 * limits->connections + 2 * threads, MHD_OPTION_CONNECTION_TIMEOUT, limits->idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        pool_bytes > POOL_BYTES_MIN ? pool_bytes : POOL_BYTES_MIN, MHD_OPTION_URI_LOG_CALLBACK,
        target_came, server, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, completed, server, MHD_OPTION_NOTIFY_CONNECTION, notified,
        server, MHD_OPTION_ARRAY, is_tls ? secure : &secure[2], MHD_OPTION_END);
    if (*out == NULL)
        return base_error(SHOAL_ERR_SYSTEM,
                          "the HTTP server for %s could not be started (are there enough file "
                          "descriptors and threads?)",
                          server->address);
    return SHOAL_OK;
}

/* The door's: a connection for one of the daemons, which closes it if it can't take it. */
static void given(void *user, bool is_tls, int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct http_server *server = user;
    if (MHD_add_connection(is_tls ? server->secure : server->plain, fd, address, bytes) != MHD_YES)
        base_log(BASE_LOG_WARN, "http: a connection could not be served: %s", strerror(errno));
}

static unsigned given_count(void *user)
{
    const struct http_server *server = user;
    return connections_count(server->connections);
}

static void crowded(void *user)
{
    struct http_server *server = user;
    connections_end_idlest(server->connections);
}

static enum shoal_status door_start(struct http_server *server)
{
    const struct http_options *options = &server->options;
    struct door_options door = {
        .listener = server->listener,
        .head_ms = options->limits.head_ms,
        .most = options->limits.connections,
        .address = server->address,
        .has_tls = options->tls != NULL,
        .plain = options->tls != NULL && options->tls->is_only ? DOOR_PLAIN_OWN : DOOR_PLAIN_ALL,
        .give = given,
        .given = given_count,
        .crowded = crowded,
        .user = server};
    return door_open(&door, &server->door);
}

static enum shoal_status secure_start(struct http_server *server)
{
    if (server->options.tls == NULL)
        return SHOAL_OK;
    TRY(tls_create(server->options.tls, &server->tls));
    return daemon_start(server, true, &server->secure);
}

static enum shoal_status server_fill(struct http_server *server)
{
    TRY(listener_open(server));
    TRY(connections_create(&server->options.limits, &server->connections));
    TRY(daemon_start(server, false, &server->plain));
    TRY(secure_start(server));
    return door_start(server);
}

enum shoal_status http_server_start(const struct http_options *options, struct http_server **out)
{
    struct http_server *server;
    TRY(BASE_NEW(&server, "an HTTP server"));
    server->options = *options;
    server->listener = -1;
    enum shoal_status status = server_fill(server);
    if (status != SHOAL_OK) {
        http_server_stop(server);
        return status;
    }
    *out = server;
    return SHOAL_OK;
}

/* Lets what is under way end, by itself at first. */
static void drain(struct http_server *server)
{
    int64_t deadline_ns = base_deadline_ns(server->options.limits.stop_ms);
    while (atomic_load(&server->under_way) > 0 && base_left_ms(deadline_ns) > 0)
        base_sleep_ms(STOP_LOOK_MS);
    atomic_store(&server->gives_up, true);
    deadline_ns = base_deadline_ns(server->options.limits.stop_ms);
    while (atomic_load(&server->under_way) > 0 && base_left_ms(deadline_ns) > 0) {
        suspend_give_up(server);
        connections_end_all(server->connections);
        base_sleep_ms(STOP_LOOK_MS);
    }
    suspend_give_up(server);
}

void http_server_stop(struct http_server *server)
{
    if (server == NULL)
        return;
    door_close(server->door);
    if (server->listener >= 0)
        close(server->listener);
    if (server->plain != NULL) {
        drain(server);
        MHD_stop_daemon(server->plain);
    }
    if (server->secure != NULL)
        MHD_stop_daemon(server->secure);
    tls_free(server->tls);
    connections_free(server->connections);
    base_free(server);
}
