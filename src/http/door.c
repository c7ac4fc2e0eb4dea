/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c: accepts connections and finds out what they speak.
 *
 * A visitor is a connection that has not said enough yet, or one that was refused and has still to
 * read why. Visitors are watched edge-triggered, because what they said stays in their sockets
 * until it is known who is to read it. All of it happens in one thread.
 */
#include "http/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#define EVENTS_MAX  64
#define LOOK_MS     250  /* how late a deadline may be noticed */
#define FULL_MS     10   /* until a full door looks whether somebody has left */
#define LEAVE_MS    2000 /* for a refused one to read why */
#define QUIET_MS    5000
#define ACCEPTS_MAX 64 /* in a row, before others get their turn */
#define REPLY_BYTES 1024

struct visitor {
    int fd;
    bool is_watched, is_leaving;
    int64_t due_ns;
    struct sockaddr_storage address;
    socklen_t address_bytes;
    struct visitor *previous, *next;
};

struct door {
    struct door_options options;
    int epoll_fd, end_fd;
    bool is_full, has_thread;
    pthread_t thread;
    int64_t quiet_ns; /* until then it doesn't complain again */
    unsigned visitors;
    struct visitor *first;
};

/* ---- visitors ----------------------------------------------------------------------------------
 */

/* Forgets it; its descriptor is the caller's again. */
static int visitor_release(struct door *door, struct visitor *visitor)
{
    int fd = visitor->fd;
    if (visitor->is_watched)
        epoll_ctl(door->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    if (visitor->previous != NULL)
        visitor->previous->next = visitor->next;
    else
        door->first = visitor->next;
    if (visitor->next != NULL)
        visitor->next->previous = visitor->previous;
    door->visitors--;
    base_free(visitor);
    return fd;
}

static void visitor_drop(struct door *door, struct visitor *visitor)
{
    close(visitor_release(door, visitor));
}

static void visitor_give(struct door *door, struct visitor *visitor, bool is_tls)
{
    struct sockaddr_storage address = visitor->address;
    socklen_t bytes = visitor->address_bytes;
    int fd = visitor_release(door, visitor);
    door->options.give(door->options.user, is_tls, fd, (struct sockaddr *)&address, bytes);
}

/* Reads and drops what came. False when nothing more will come. */
static bool drain(int fd)
{
    char dropped[4096];
    ssize_t got;
    do
        got = recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT);
    while (got > 0 || (got < 0 && errno == EINTR));
    return got < 0 && errno == EAGAIN;
}

/* Says why, and lets it read that: a close with bytes unread would take the words back. */
static void visitor_refuse(struct door *door, struct visitor *visitor, const char *status,
                           const char *text)
{
    char reply[REPLY_BYTES];
    int length = snprintf(reply, sizeof(reply),
                          "HTTP/1.1 %s\r\nServer: Shoal\r\nContent-Type: text/plain\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n%s\n",
                          status, strlen(text) + 1, text);
    base_log(BASE_LOG_INFO, "http: a connection was refused: %s", text);
    if (length >= REPLY_BYTES || !drain(visitor->fd) ||
        send(visitor->fd, reply, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL) != length) {
        visitor_drop(door, visitor);
        return;
    }
    shutdown(visitor->fd, SHUT_WR);
    visitor->is_leaving = true;
    visitor->due_ns = base_deadline_ns(LEAVE_MS);
}

/* ---- what they said ----------------------------------------------------------------------------
 */

static void target_refuse(struct door *door, struct visitor *visitor,
                          const struct front_target *target)
{
    char status[REPLY_BYTES / 2];
    /* Python's clients show no more of a proxy's reply than its first line. */
    snprintf(status, sizeof(status),
             "403 Forbidden by shoal serve, which stands for *.amazonaws.com:443 only (put %s in "
             "NO_PROXY)",
             target->host);
    visitor_refuse(door, visitor, status,
                   "This proxy is shoal serve: it stands for the hosts of *.amazonaws.com, port "
                   "443, and leads nowhere else. Put other hosts in NO_PROXY, or unset "
                   "HTTPS_PROXY.");
}

/* Answers a CONNECT: TLS follows it on the same connection. */
static void tunnel_open(struct door *door, struct visitor *visitor, char *head, size_t bytes)
{
    static const char reply[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    if (recv(visitor->fd, head, bytes, MSG_DONTWAIT) != (ssize_t)bytes ||
        send(visitor->fd, reply, sizeof(reply) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) !=
            sizeof(reply) - 1)
        visitor_drop(door, visitor);
    else
        visitor_give(door, visitor, true);
}

static void connect_run(struct door *door, struct visitor *visitor, char *head, size_t count)
{
    struct front_target target;
    size_t bytes;
    enum shoal_status status = front_connect_read(head, count, &target, &bytes);
    if (status == SHOAL_IN_PROGRESS)
        return;
    if (status != SHOAL_OK)
        visitor_refuse(door, visitor, "400 Bad Request", base_error_text());
    else if (!door->options.has_tls || !front_serves(&target))
        target_refuse(door, visitor, &target);
    else
        tunnel_open(door, visitor, head, bytes);
}

/* Whether it comes from this machine: from a loopback address, or from the one that it called. */
static bool is_own(const struct visitor *visitor)
{
    struct sockaddr_storage called;
    socklen_t bytes = sizeof(called);
    if (getsockname(visitor->fd, (struct sockaddr *)&called, &bytes) != 0 ||
        called.ss_family != visitor->address.ss_family)
        return false;
    if (called.ss_family == AF_INET) {
        const struct sockaddr_in *to = (void *)&called, *from = (const void *)&visitor->address;
        return from->sin_addr.s_addr == to->sin_addr.s_addr ||
               ntohl(from->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *to = (void *)&called, *from = (const void *)&visitor->address;
    return called.ss_family == AF_INET6 && (IN6_ARE_ADDR_EQUAL(&from->sin6_addr, &to->sin6_addr) ||
                                            IN6_IS_ADDR_LOOPBACK(&from->sin6_addr));
}

static void plain_run(struct door *door, struct visitor *visitor)
{
    char text[REPLY_BYTES / 2];
    if (door->options.plain == DOOR_PLAIN_ALL ||
        (door->options.plain == DOOR_PLAIN_OWN && is_own(visitor))) {
        visitor_give(door, visitor, false);
        return;
    }
    snprintf(text, sizeof(text), "This service speaks TLS only: https://%s", door->options.address);
    visitor_refuse(door, visitor, "400 Bad Request", text);
}

static void visitor_listen(struct door *door, struct visitor *visitor)
{
    char head[FRONT_HEAD_BYTES_MAX];
    ssize_t got = recv(visitor->fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        visitor_drop(door, visitor);
        return;
    }
    switch (front_kind(head, got > 0 ? (size_t)got : 0)) {
    case FRONT_UNSURE: break;
    case FRONT_CONNECT: connect_run(door, visitor, head, (size_t)got); break;
    case FRONT_TLS:
        if (door->options.has_tls)
            visitor_give(door, visitor, true);
        else
            visitor_drop(door, visitor);
        break;
    case FRONT_PLAIN: plain_run(door, visitor); break;
    }
}

static void visitor_run(struct door *door, struct visitor *visitor)
{
    if (!visitor->is_leaving)
        visitor_listen(door, visitor);
    else if (!drain(visitor->fd))
        visitor_drop(door, visitor);
}

/* ---- the door's thread -------------------------------------------------------------------------
 */

static void visitor_came(struct door *door, int fd, const struct sockaddr_storage *address,
                         socklen_t address_bytes)
{
    struct visitor *visitor;
    if (BASE_NEW(&visitor, "a connection") != SHOAL_OK) {
        close(fd);
        return;
    }
    *visitor = (struct visitor){.fd = fd,
                                .due_ns = base_deadline_ns(door->options.head_ms),
                                .address = *address,
                                .address_bytes = address_bytes,
                                .next = door->first};
    if (door->first != NULL)
        door->first->previous = visitor;
    door->first = visitor;
    door->visitors++;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = visitor};
    visitor->is_watched = epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
    if (!visitor->is_watched)
        visitor_drop(door, visitor);
}

static bool has_room(const struct door *door)
{
    return door->visitors + door->options.given(door->options.user) < door->options.most;
}

/* A full door doesn't look at its listener; it is level-triggered, so nobody is forgotten. */
static void full_set(struct door *door, bool is_full)
{
    struct epoll_event event = {.events = is_full ? 0 : EPOLLIN, .data.ptr = NULL};
    if (is_full != door->is_full)
        epoll_ctl(door->epoll_fd, EPOLL_CTL_MOD, door->options.listener, &event);
    door->is_full = is_full;
}

/* No descriptors or no memory: tries again soon, and says so once in a while. */
static void accept_failed(struct door *door, int error)
{
    if (base_left_ms(door->quiet_ns) == 0) {
        base_log(BASE_LOG_WARN, "http: no connection can be accepted now: %s", strerror(error));
        door->quiet_ns = base_deadline_ns(QUIET_MS);
    }
    full_set(door, true);
}

static void accept_some(struct door *door)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage address;
        socklen_t bytes = sizeof(address);
        if (!has_room(door)) {
            full_set(door, true);
            if (door->options.crowded != NULL)
                door->options.crowded(door->options.user);
            return;
        }
        int fd = accept4(door->options.listener, (struct sockaddr *)&address, &bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            visitor_came(door, fd, &address, bytes);
        else if (errno == EAGAIN)
            return;
        else if (errno != ECONNABORTED && errno != EINTR) {
            accept_failed(door, errno);
            return;
        }
    }
}

static void deadlines_look(struct door *door)
{
    int64_t now_ns = base_now_ns();
    for (struct visitor *each = door->first, *next; each != NULL; each = next) {
        next = each->next;
        if (each->due_ns <= now_ns)
            visitor_drop(door, each);
    }
}

/* False when the door is to be closed. */
static bool events_run(struct door *door, const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == door)
            return false;
        if (events[i].data.ptr == NULL)
            accept_some(door);
        else
            visitor_run(door, events[i].data.ptr);
    }
    return true;
}

static void *watch(void *user)
{
    struct door *door = user;
    int64_t look_ns = base_deadline_ns(LOOK_MS);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int wait_ms = door->is_full ? FULL_MS : door->visitors > 0 ? LOOK_MS : -1;
        int count = epoll_wait(door->epoll_fd, events, EVENTS_MAX, wait_ms);
        if (!events_run(door, events, count))
            return NULL;
        if (door->is_full && has_room(door))
            full_set(door, false);
        if (base_left_ms(look_ns) == 0) {
            deadlines_look(door);
            look_ns = base_deadline_ns(LOOK_MS);
        }
    }
}

/* ---- open and close ----------------------------------------------------------------------------
 */

static enum shoal_status door_fill(struct door *door)
{
    struct epoll_event listens = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event ends = {.events = EPOLLIN, .data.ptr = door};
    door->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    door->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (door->epoll_fd < 0 || door->end_fd < 0 ||
        epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, door->options.listener, &listens) != 0 ||
        epoll_ctl(door->epoll_fd, EPOLL_CTL_ADD, door->end_fd, &ends) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "the server cannot accept connections");
    int error = pthread_create(&door->thread, NULL, watch, door);
    if (error != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, error, "no thread for the server");
    door->has_thread = true;
    return SHOAL_OK;
}

enum shoal_status door_open(const struct door_options *options, struct door **out)
{
    struct door *door;
    TRY(BASE_NEW(&door, "a server's door"));
    door->options = *options;
    door->epoll_fd = door->end_fd = -1;
    enum shoal_status status = door_fill(door);
    if (status != SHOAL_OK) {
        door_close(door);
        return status;
    }
    *out = door;
    return SHOAL_OK;
}

void door_close(struct door *door)
{
    if (door == NULL)
        return;
    if (door->has_thread) {
        eventfd_write(door->end_fd, 1);
        pthread_join(door->thread, NULL);
    }
    while (door->first != NULL)
        visitor_drop(door, door->first);
    if (door->epoll_fd >= 0)
        close(door->epoll_fd);
    if (door->end_fd >= 0)
        close(door->end_fd);
    base_free(door);
}
