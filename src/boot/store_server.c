/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_server.c: the store's server, one thread over epoll.
 *
 * States of a client: HELLO (its hello is awaited) -> PROOF (answered, its proof is awaited) ->
 * READY (requests). A connection that sends anything else, or nothing for a few seconds, is closed
 * without a word; when too many are unproven the oldest goes. Only READY ones can make the server
 * allocate.
 *
 * Invariants:
 *  1. A client has at most one request that waits and at most one answer that is being sent.
 *  2. While an answer is being sent nothing is read from that client.
 *  3. A gather exists while a client waits for it; `present` counts its keys that are there.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "boot/address.h"
#include "boot/store.h"
#include "boot/store_listen.h"
#include "boot/store_process.h"
#include "boot/store_table.h"
#include "boot/store_wire.h"
#include "net/proof.h"

#define CLIENTS_MAX     65536
#define UNPROVEN_MAX    512
#define PROVE_MS        5000
#define ACCEPTS_AT_ONCE 64
#define TABLE_BYTES_MAX ((size_t)256 << 20)
#define HEAD_BYTES_MAX  NET_ANSWER_BYTES

enum client_state { CLIENT_HELLO, CLIENT_PROOF, CLIENT_READY };

struct gather {
    struct gather *next;
    size_t prefix_bytes;
    uint32_t count, present, waiting;
    char prefix[BOOT_KEY_BYTES];
};

struct client {
    struct client *next, *previous;
    int fd;
    enum client_state state;
    int64_t prove_by_ns;
    struct net_proof proof;

    /* What is being read: first the head, then the body. */
    unsigned char head[HEAD_BYTES_MAX];
    unsigned char *body; /* key and value; NULL while the head is read */
    size_t read_bytes;
    struct store_request request;

    /* What it waits for: a key, or a gather. */
    bool waits_key;
    char wait_key[BOOT_KEY_BYTES];
    size_t wait_key_bytes;
    struct gather *gather;

    /* What is being sent. */
    unsigned char out[HEAD_BYTES_MAX];
    size_t out_bytes, sent_bytes;
    struct store_value *out_value;
    uint32_t interest; /* as epoll knows it */
};

struct boot_store_server {
    struct store_listed listed; /* first: both have one address */
    pthread_t thread;
    int epoll_fd, wake_fd;
    struct store_listeners listeners;
    unsigned char secret[NET_SECRET_BYTES];
    struct store_table *table;
    struct gather *gathers;
    struct client *clients; /* newest first */
    int client_count, unproven_count;
    atomic_bool stopping;
    int64_t linger_until_ns; /* written before stopping */
};

/* ---- gathers --------------------------------------------------------------------------------- */

/* The key of a gather's index-th value; its length. */
static size_t gather_key(const char *prefix, size_t prefix_bytes, uint32_t index,
                         char key[BOOT_KEY_BYTES + 16])
{
    memcpy(key, prefix, prefix_bytes);
    return prefix_bytes + (size_t)sprintf(key + prefix_bytes, "%u", index);
}

/* Whether the key is one of the gather's. */
static bool gather_has(const struct gather *gather, const char *key, size_t key_bytes)
{
    size_t digits = key_bytes - gather->prefix_bytes;
    if (key_bytes <= gather->prefix_bytes || digits > 6 ||
        memcmp(key, gather->prefix, gather->prefix_bytes) != 0)
        return false;
    uint32_t index = 0;
    for (const char *at = key + gather->prefix_bytes; at < key + key_bytes; at++) {
        if (*at < '0' || *at > '9')
            return false;
        index = index * 10 + (uint32_t)(*at - '0');
    }
    bool leading_zero = digits > 1 && key[gather->prefix_bytes] == '0';
    return index < gather->count && !leading_zero;
}

static struct store_value *gather_find(const struct boot_store_server *server, const char *prefix,
                                       size_t prefix_bytes, uint32_t index)
{
    char key[BOOT_KEY_BYTES + 16];
    size_t bytes = gather_key(prefix, prefix_bytes, index, key);
    return store_table_find(server->table, key, bytes);
}

/* The gather of that prefix and count, made if there is none. */
static enum shoal_status gather_open(struct boot_store_server *server, const char *prefix,
                                     size_t prefix_bytes, uint32_t count, struct gather **out)
{
    struct gather *gather = server->gathers;
    for (; gather != NULL; gather = gather->next) {
        if (gather->count == count && gather->prefix_bytes == prefix_bytes &&
            memcmp(gather->prefix, prefix, prefix_bytes) == 0)
            break;
    }
    if (gather == NULL) {
        TRY(BASE_NEW(&gather, "a gather of the store"));
        memcpy(gather->prefix, prefix, prefix_bytes);
        gather->prefix_bytes = prefix_bytes;
        gather->count = count;
        for (uint32_t i = 0; i < count; i++)
            gather->present += gather_find(server, prefix, prefix_bytes, i) != NULL;
        gather->next = server->gathers;
        server->gathers = gather;
    }
    *out = gather;
    return SHOAL_OK;
}

static void gather_leave(struct boot_store_server *server, struct gather *gather)
{
    if (--gather->waiting > 0)
        return;
    struct gather **at = &server->gathers;
    while (*at != gather)
        at = &(*at)->next;
    *at = gather->next;
    base_free(gather);
}

/* Sizes, then values: what every client that waits for the gather gets. */
static enum shoal_status gather_collect(const struct boot_store_server *server,
                                        const struct gather *gather, struct store_value **out)
{
    size_t bytes = 4 * (size_t)gather->count;
    for (uint32_t i = 0; i < gather->count; i++)
        bytes += gather_find(server, gather->prefix, gather->prefix_bytes, i)->bytes;
    if (bytes > TABLE_BYTES_MAX)
        return base_error(SHOAL_ERR_LIMIT, "a gather of %zu MiB", bytes >> 20);
    struct store_value *whole;
    TRY(store_value_create(bytes, &whole));
    unsigned char *at = whole->data + 4 * (size_t)gather->count;
    for (uint32_t i = 0; i < gather->count; i++) {
        const struct store_value *value =
            gather_find(server, gather->prefix, gather->prefix_bytes, i);
        store_put(whole->data + 4 * (size_t)i, (uint32_t)value->bytes);
        memcpy(at, value->data, value->bytes);
        at += value->bytes;
    }
    *out = whole;
    return SHOAL_OK;
}

/* ---- clients --------------------------------------------------------------------------------- */

static void client_withdraw_wait(struct boot_store_server *server, struct client *client)
{
    client->waits_key = false;
    if (client->gather != NULL)
        gather_leave(server, client->gather);
    client->gather = NULL;
}

/* A child that the program forked may hold a copy of the socket: closing ours would then neither
 * take it out of epoll nor tell the peer, so both are done by hand. */
static void client_drop(struct boot_store_server *server, struct client *client)
{
    client_withdraw_wait(server, client);
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    shutdown(client->fd, SHUT_RDWR);
    close(client->fd);
    if (client->previous != NULL)
        client->previous->next = client->next;
    else
        server->clients = client->next;
    if (client->next != NULL)
        client->next->previous = client->previous;
    server->client_count--;
    server->unproven_count -= client->state != CLIENT_READY;
    store_value_drop(client->out_value);
    base_free(client->body);
    base_free(client);
}

/* Tells epoll whether the client reads or writes now. */
static bool client_set_interest(struct boot_store_server *server, struct client *client)
{
    bool writes = client->sent_bytes <
                  client->out_bytes + (client->out_value != NULL ? client->out_value->bytes : 0);
    uint32_t interest = writes ? EPOLLOUT : EPOLLIN;
    if (interest == client->interest)
        return true;
    struct epoll_event event = {.events = interest, .data.ptr = client};
    client->interest = interest;
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, client->fd, &event) == 0;
}

/* Sends what the socket takes; false if the client is gone. */
static bool client_flush(struct boot_store_server *server, struct client *client)
{
    size_t value_bytes = client->out_value != NULL ? client->out_value->bytes : 0;
    while (client->sent_bytes < client->out_bytes + value_bytes) {
        struct iovec parts[2];
        struct msghdr message = {.msg_iov = parts};
        size_t sent = client->sent_bytes;
        if (sent < client->out_bytes)
            parts[message.msg_iovlen++] =
                (struct iovec){client->out + sent, client->out_bytes - sent};
        size_t value_sent = sent > client->out_bytes ? sent - client->out_bytes : 0;
        if (value_bytes > 0)
            parts[message.msg_iovlen++] =
                (struct iovec){client->out_value->data + value_sent, value_bytes - value_sent};
        ssize_t done = sendmsg(client->fd, &message, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return (errno == EAGAIN || errno == EWOULDBLOCK) && client_set_interest(server, client);
        client->sent_bytes += (size_t)done;
    }
    store_value_drop(client->out_value);
    client->out_value = NULL;
    client->out_bytes = client->sent_bytes = 0;
    return client_set_interest(server, client);
}

/* Answers the client's request; holds `value` (may be NULL). False if the client is gone. */
static bool client_answer(struct boot_store_server *server, struct client *client,
                          enum store_result result, struct store_value *value)
{
    client_withdraw_wait(server, client);
    store_put(client->out, client->request.number);
    store_put(client->out + 4, (uint32_t)result);
    store_put(client->out + 8, value != NULL ? (uint32_t)value->bytes : 0);
    client->out_bytes = STORE_ANSWER_BYTES;
    client->sent_bytes = 0;
    client->out_value = value != NULL ? store_value_hold(value) : NULL;
    return client_flush(server, client);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Answers everybody who waited for this key. A client that turns out to be gone is left for its own
 * event, because the list is being walked. */
static void wake_waiters(struct boot_store_server *server, const char *key, size_t key_bytes,
                         struct store_value *value)
{
    for (struct client *client = server->clients; client != NULL; client = client->next) {
        if (client->waits_key && client->wait_key_bytes == key_bytes &&
            memcmp(client->wait_key, key, key_bytes) == 0 &&
            !client_answer(server, client, STORE_DONE, value))
            shutdown(client->fd, SHUT_RDWR);
    }
}

static void wake_gather(struct boot_store_server *server, struct gather *gather)
{
    struct store_value *whole = NULL;
    enum store_result result =
        gather_collect(server, gather, &whole) == SHOAL_OK ? STORE_DONE : STORE_FULL;
    gather->waiting++; /* stays until all are answered */
    for (struct client *client = server->clients; client != NULL; client = client->next) {
        if (client->gather == gather && !client_answer(server, client, result, whole))
            shutdown(client->fd, SHUT_RDWR);
    }
    store_value_drop(whole);
    gather_leave(server, gather);
}

static void wake_gathers(struct boot_store_server *server, const char *key, size_t key_bytes)
{
    for (struct gather *gather = server->gathers, *next; gather != NULL; gather = next) {
        next = gather->next;
        if (gather_has(gather, key, key_bytes) && ++gather->present == gather->count)
            wake_gather(server, gather);
    }
}

static bool request_set(struct boot_store_server *server, struct client *client)
{
    const struct store_request *request = &client->request;
    const char *key = (const char *)client->body;
    const unsigned char *value = client->body + request->key_bytes;
    struct store_value *old = store_table_find(server->table, key, request->key_bytes);
    if (old != NULL) {
        bool same = old->bytes == request->value_bytes &&
                    (old->bytes == 0 || memcmp(old->data, value, old->bytes) == 0);
        return client_answer(server, client, same ? STORE_DONE : STORE_TAKEN, NULL);
    }
    if (store_table_add(server->table, key, request->key_bytes, value, request->value_bytes) !=
        SHOAL_OK)
        return client_answer(server, client, STORE_FULL, NULL);
    /* Who set it is answered before those who waited: one of them may end this process. */
    bool stays = client_answer(server, client, STORE_DONE, NULL);
    wake_waiters(server, key, request->key_bytes,
                 store_table_find(server->table, key, request->key_bytes));
    wake_gathers(server, key, request->key_bytes);
    return stays;
}

static bool request_get(struct boot_store_server *server, struct client *client)
{
    size_t bytes = client->request.key_bytes;
    struct store_value *value = store_table_find(server->table, (char *)client->body, bytes);
    if (value != NULL)
        return client_answer(server, client, STORE_DONE, value);
    memcpy(client->wait_key, client->body, bytes);
    client->wait_key_bytes = bytes;
    client->waits_key = true;
    return true;
}

static bool request_gather(struct boot_store_server *server, struct client *client)
{
    struct gather *gather;
    if (gather_open(server, (char *)client->body, client->request.key_bytes, client->request.count,
                    &gather) != SHOAL_OK)
        return client_answer(server, client, STORE_FULL, NULL);
    gather->waiting++;
    client->gather = gather;
    if (gather->present < gather->count)
        return true;
    struct store_value *whole = NULL;
    enum store_result result =
        gather_collect(server, gather, &whole) == SHOAL_OK ? STORE_DONE : STORE_FULL;
    bool stays = client_answer(server, client, result, whole);
    store_value_drop(whole);
    return stays;
}

static bool request_missing(struct boot_store_server *server, struct client *client)
{
    struct store_value *present;
    if (store_value_create(client->request.count, &present) != SHOAL_OK)
        return client_answer(server, client, STORE_FULL, NULL);
    for (uint32_t i = 0; i < client->request.count; i++)
        present->data[i] =
            gather_find(server, (char *)client->body, client->request.key_bytes, i) != NULL;
    bool stays = client_answer(server, client, STORE_DONE, present);
    store_value_drop(present);
    return stays;
}

static bool client_request(struct boot_store_server *server, struct client *client)
{
    client_withdraw_wait(server, client);
    bool stays = false;
    switch (client->request.operation) {
    case STORE_SET: stays = request_set(server, client); break;
    case STORE_GET: stays = request_get(server, client); break;
    case STORE_GATHER: stays = request_gather(server, client); break;
    case STORE_MISSING: stays = request_missing(server, client); break;
    default: break;
    }
    base_free(client->body);
    client->body = NULL;
    client->read_bytes = 0;
    return stays;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool client_hello(struct boot_store_server *server, struct client *client)
{
    memcpy(client->proof.secret, server->secret, NET_SECRET_BYTES);
    client->proof.rank_mine = -1;
    if (net_proof_answer(&client->proof, client->head, client->out) != SHOAL_OK)
        return false;
    client->out_bytes = NET_ANSWER_BYTES;
    client->state = CLIENT_PROOF;
    client->read_bytes = 0;
    return client_flush(server, client);
}

static bool client_proof(struct boot_store_server *server, struct client *client)
{
    if (net_proof_check(&client->proof, client->head) != SHOAL_OK)
        return false;
    client->state = CLIENT_READY;
    client->read_bytes = 0;
    server->unproven_count--;
    return true;
}

/* A request's head is complete: makes room for its body. */
static bool client_request_head(struct client *client)
{
    struct store_request *request = &client->request;
    request->number = store_get(client->head);
    request->operation = store_get(client->head + 4);
    request->key_bytes = store_get(client->head + 8);
    request->value_bytes = store_get(client->head + 12);
    request->count = store_get(client->head + 16);
    if (request->key_bytes == 0 || request->key_bytes >= BOOT_KEY_BYTES ||
        request->value_bytes > BOOT_VALUE_BYTES || request->count > STORE_GATHER_MAX ||
        base_alloc((size_t)request->key_bytes + request->value_bytes, "a request to the store",
                   (void **)&client->body) != SHOAL_OK)
        return false;
    client->read_bytes = 0;
    return true;
}

static size_t client_wanted_bytes(const struct client *client)
{
    switch (client->state) {
    case CLIENT_HELLO: return NET_HELLO_BYTES;
    case CLIENT_PROOF: return NET_PROOF_BYTES;
    case CLIENT_READY: break;
    }
    if (client->body != NULL)
        return (size_t)client->request.key_bytes + client->request.value_bytes;
    return STORE_REQUEST_BYTES;
}

/* What was wanted is here. */
static bool client_complete(struct boot_store_server *server, struct client *client)
{
    switch (client->state) {
    case CLIENT_HELLO: return client_hello(server, client);
    case CLIENT_PROOF: return client_proof(server, client);
    case CLIENT_READY: break;
    }
    return client->body != NULL ? client_request(server, client) : client_request_head(client);
}

/* Reads until the socket is empty or an answer waits to be sent; false if the client is gone. */
static bool client_read(struct boot_store_server *server, struct client *client)
{
    while (client->out_bytes == 0) {
        size_t wanted = client_wanted_bytes(client);
        unsigned char *into = client->body != NULL ? client->body : client->head;
        ssize_t got = recv(client->fd, into + client->read_bytes, wanted - client->read_bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (got == 0)
            return false;
        client->read_bytes += (size_t)got;
        if (client->read_bytes == wanted && !client_complete(server, client))
            return false;
    }
    return true;
}

static void client_event(struct boot_store_server *server, struct client *client, uint32_t events)
{
    bool stays = true;
    if (events & EPOLLOUT)
        stays = client_flush(server, client);
    if (stays && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        stays = client->out_bytes == 0 ? client_read(server, client) : (events & EPOLLIN) != 0;
    if (!stays)
        client_drop(server, client);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Closes unproven connections: those out of time, and the oldest while there are too many. */
static void drop_strangers(struct boot_store_server *server)
{
    int64_t now_ns = base_now_ns();
    struct client *oldest = NULL;
    for (struct client *client = server->clients, *next; client != NULL; client = next) {
        next = client->next;
        if (client->state == CLIENT_READY)
            continue;
        if (client->prove_by_ns <= now_ns)
            client_drop(server, client);
        else
            oldest = client;
    }
    if (server->unproven_count > UNPROVEN_MAX && oldest != NULL)
        client_drop(server, oldest);
}

static void set_socket_options(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static enum shoal_status client_add(struct boot_store_server *server, int fd)
{
    struct client *client;
    if (server->client_count >= CLIENTS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "more than %d connections", CLIENTS_MAX);
    TRY(BASE_NEW(&client, "a client of the store"));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        base_free(client);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "epoll");
    }
    set_socket_options(fd);
    client->fd = fd;
    client->interest = EPOLLIN;
    client->prove_by_ns = base_deadline_ns(PROVE_MS);
    client->next = server->clients;
    if (server->clients != NULL)
        server->clients->previous = client;
    server->clients = client;
    server->client_count++;
    if (++server->unproven_count > UNPROVEN_MAX)
        drop_strangers(server);
    return SHOAL_OK;
}

static void accept_clients(struct boot_store_server *server, int listen_fd)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            /* Out of descriptors or memory: the connection stays in the backlog meanwhile. */
            base_log(BASE_LOG_WARN, "the store cannot take a connection: %s", strerror(errno));
            base_sleep_ms(50);
        }
        if (fd < 0)
            return;
        if (client_add(server, fd) != SHOAL_OK) {
            base_log(BASE_LOG_WARN, "the store refuses a connection: %s", base_error_text());
            close(fd);
        }
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Until a stranger's time is up, or the server's own. */
static int next_timeout_ms(const struct boot_store_server *server)
{
    int64_t until_ns = BASE_NO_DEADLINE;
    struct client *client = server->unproven_count > 0 ? server->clients : NULL;
    for (; client != NULL; client = client->next) {
        if (client->state != CLIENT_READY && client->prove_by_ns < until_ns)
            until_ns = client->prove_by_ns;
    }
    if (atomic_load(&server->stopping) && server->linger_until_ns < until_ns)
        until_ns = server->linger_until_ns;
    return until_ns == BASE_NO_DEADLINE ? -1 : base_left_ms(until_ns);
}

static bool must_end(const struct boot_store_server *server)
{
    return atomic_load(&server->stopping) && (server->client_count == server->unproven_count ||
                                              base_now_ns() >= server->linger_until_ns);
}

static void dispatch(struct boot_store_server *server, const struct epoll_event *event)
{
    if (event->data.ptr == &server->wake_fd) {
        uint64_t count;
        ssize_t ignored = read(server->wake_fd, &count, sizeof(count));
        (void)ignored;
        return;
    }
    for (int i = 0; i < server->listeners.count; i++) {
        if (event->data.ptr == &server->listeners.fds[i]) {
            accept_clients(server, server->listeners.fds[i]);
            return;
        }
    }
    client_event(server, event->data.ptr, event->events);
}

/* One event at a time: handling one may drop the client of a later one. */
static void *serve(void *argument)
{
    struct boot_store_server *server = argument;
    pthread_setname_np(pthread_self(), "shoal-store");
    while (!must_end(server)) {
        struct epoll_event event;
        int count = epoll_wait(server->epoll_fd, &event, 1, next_timeout_ms(server));
        if (count == 1)
            dispatch(server, &event);
        if (server->unproven_count > 0)
            drop_strangers(server);
    }
    return NULL;
}

static enum shoal_status watch(struct boot_store_server *server, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, *fd, &event) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "the store cannot watch its sockets");
    return SHOAL_OK;
}

/* The thread takes no signals: they are for the program's own threads. */
static enum shoal_status start_thread(struct boot_store_server *server)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, result, "cannot start the store's thread");
    return SHOAL_OK;
}

static enum shoal_status open_all(struct boot_store_server *server, const char *host, int port)
{
    TRY(store_listen(host, port, &server->listeners));
    TRY(store_table_create(TABLE_BYTES_MAX, &server->table));
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll_fd < 0 || server->wake_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "the store cannot open epoll and eventfd");
    TRY(watch(server, &server->wake_fd));
    for (int i = 0; i < server->listeners.count; i++)
        TRY(watch(server, &server->listeners.fds[i]));
    return start_thread(server);
}

/* All but the thread. */
static void release(struct boot_store_server *server)
{
    while (server->clients != NULL)
        client_drop(server, server->clients);
    store_listen_close(&server->listeners);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    store_table_free(server->table);
    base_free(server->listed.lasting_address);
    base_free(server);
}

/* ---- start and stop -------------------------------------------------------------------------- */

static void stop_listed(struct store_listed *listed);

enum shoal_status boot_store_serve(const char *host, int port, const unsigned char *secret,
                                   struct boot_store_server **out)
{
    struct boot_store_server *server;
    TRY(BASE_NEW(&server, "the store's server"));
    server->epoll_fd = server->wake_fd = -1;
    memcpy(server->secret, secret, NET_SECRET_BYTES);
    enum shoal_status status = open_all(server, host, port);
    if (status != SHOAL_OK) {
        release(server);
        return status;
    }
    server->listed.listeners = &server->listeners;
    server->listed.stop = stop_listed;
    store_process_add(&server->listed);
    *out = server;
    return SHOAL_OK;
}

int boot_store_port(const struct boot_store_server *server)
{
    return server->listeners.port;
}

static void stop(struct boot_store_server *server, int64_t linger_ms)
{
    store_process_remove(&server->listed);
    server->linger_until_ns = base_deadline_ns(linger_ms > 0 ? linger_ms : 0);
    atomic_store(&server->stopping, true);
    uint64_t one = 1;
    ssize_t ignored = write(server->wake_fd, &one, sizeof(one));
    (void)ignored;
    pthread_join(server->thread, NULL);
    release(server);
}

static void stop_listed(struct store_listed *listed)
{
    stop((struct boot_store_server *)listed, 0);
}

void boot_store_stop(struct boot_store_server *server, int64_t linger_ms)
{
    if (server != NULL && server->listed.lasting_address == NULL)
        stop(server, linger_ms);
}

enum shoal_status boot_store_keep(struct boot_store_server *server, const char *address)
{
    return base_strdup(address, "the store's address", &server->listed.lasting_address);
}

/* Serves at the first of the addresses whose port is free; the first one's error if none is. */
static enum shoal_status serve_first(const char *addresses, const unsigned char *secret,
                                     struct boot_store_server **out)
{
    enum shoal_status status = SHOAL_OK;
    char first_error[BASE_ERROR_TEXT_BYTES] = "";
    for (const char *at = addresses;; at++) {
        char one[BOOT_ADDRESS_HOST_BYTES + 16], host[BOOT_ADDRESS_HOST_BYTES];
        int port;
        size_t bytes = strcspn(at, ",");
        snprintf(one, sizeof(one), "%.*s", (int)bytes, at);
        TRY(boot_address_split(one, host, &port));
        status =
            boot_store_serve(boot_address_host_is_loopback(host) ? host : NULL, port, secret, out);
        if (first_error[0] == '\0')
            snprintf(first_error, sizeof(first_error), "%s", base_error_text());
        at += bytes;
        if (status != SHOAL_ERR_SYSTEM || *at == '\0')
            break;
    }
    return status == SHOAL_OK ? status : base_error(status, "%s", first_error);
}

enum shoal_status boot_store_serve_address(const char *addresses, const unsigned char *secret,
                                           struct boot_store_server **out)
{
    /* The list's place is the first member. */
    struct boot_store_server *server = (struct boot_store_server *)store_process_find(addresses);
    if (server != NULL && memcmp(server->secret, secret, NET_SECRET_BYTES) != 0) {
        stop(server, 0); /* of another job of this process */
        server = NULL;
    }
    if (server == NULL) {
        TRY(serve_first(addresses, secret, &server));
        enum shoal_status status = boot_store_keep(server, addresses);
        if (status != SHOAL_OK) {
            stop(server, 0);
            return status;
        }
    }
    *out = server;
    return SHOAL_OK;
}
