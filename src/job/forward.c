/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward.c: see forward.h. A link has two ways, each with a buffer: its source is read while the
 * buffer is empty, its target written while it isn't. When a source has ended and its buffer is
 * empty, the target hears of the end; when both ways have ended, or one end broke, the link goes.
 */
#include "job/forward.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/home.h"
#include "launch/process.h"

#define WAY_BYTES  (64u << 10)
#define TEXT_BYTES 128

struct way {
    size_t begin, end;
    bool ended; /* its source; and its target knows when the buffer is empty */
    char bytes[WAY_BYTES];
};

/* Way i goes from end i to the other one. */
struct forward_link {
    struct forward *all;
    int fds[2];
    bool broken;
    struct way ways[2];
};

/* ---- links ---- */

static void read_way(struct forward_link *link, int from)
{
    struct way *way = &link->ways[from];
    if (way->ended || way->begin < way->end)
        return;
    ssize_t got = recv(link->fds[from], way->bytes, sizeof(way->bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got < 0)
        link->broken = true;
    way->begin = 0;
    way->end = got > 0 ? (size_t)got : 0;
    way->ended = got == 0;
    if (way->ended)
        shutdown(link->fds[!from], SHUT_WR);
}

static void write_way(struct forward_link *link, int from)
{
    struct way *way = &link->ways[from];
    while (way->begin < way->end) {
        ssize_t sent = send(link->fds[!from], way->bytes + way->begin, way->end - way->begin,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            link->broken = link->broken || errno != EAGAIN;
            return;
        }
        way->begin += (size_t)sent;
    }
}

/* Both ways are tried, whatever it was that woke the link. */
static enum shoal_status link_ready(void *owner, short events)
{
    struct forward_link *link = owner;
    for (int from = 0; from < 2; from++) {
        write_way(link, from);
        read_way(link, from);
        write_way(link, from);
    }
    if ((events & POLLERR) != 0)
        link->broken = true;
    return SHOAL_OK;
}

static void link_free(struct forward_link *link)
{
    launch_fd_close(&link->fds[0]);
    launch_fd_close(&link->fds[1]);
    base_free(link);
}

static bool is_over(const struct forward_link *link)
{
    const struct way *ways = link->ways;
    return link->broken || (ways[0].ended && ways[1].ended && ways[0].begin == ways[0].end &&
                            ways[1].begin == ways[1].end);
}

/* An end is watched for reading while its way is empty, for writing while the other way is not. */
static enum shoal_status watch_link(struct forward_link *link, struct launch_loop *loop)
{
    for (int i = 0; i < 2; i++) {
        const struct way *out = &link->ways[i], *in = &link->ways[!i];
        short events = (short)((!out->ended && out->begin == out->end ? POLLIN : 0) |
                               (in->begin < in->end ? POLLOUT : 0));
        if (events != 0)
            TRY(launch_loop_add(loop,
                                (struct launch_watch){link->fds[i], events, link_ready, link}));
    }
    return SHOAL_OK;
}

/* ---- addresses ---- */

static enum shoal_status parse(const char *text, struct sockaddr_storage *address, socklen_t *bytes)
{
    char host[TEXT_BYTES];
    const char *colon = strrchr(text, ':');
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *found;
    bool bracketed = text[0] == '[' && colon != NULL && colon > text + 1 && colon[-1] == ']';
    int begin = bracketed ? 1 : 0;
    int count = colon != NULL ? (int)(colon - text) - 2 * begin : 0;
    snprintf(host, sizeof(host), "%.*s", count, text + begin);
    if (count == 0 || colon[1] == '\0' || getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "'%s' is no address in numbers such as 127.0.0.1:8080", text);
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return SHOAL_OK;
}

/* A service may have come back on another port since the last connection. */
static enum shoal_status find(const char *to, struct sockaddr_storage *address, socklen_t *bytes)
{
    char text[HTTP_HOME_ADDRESS_BYTES];
    if (to[0] != '/')
        return parse(to, address, bytes);
    TRY(http_home_address(to, text, sizeof(text)));
    return parse(text, address, bytes);
}

enum shoal_status forward_check(const char *to)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    return to[0] == '/' ? SHOAL_OK : parse(to, &address, &bytes);
}

/* ---- doors ---- */

/* A socket that connects to where the door leads; -1: it leads nowhere. */
static int connect_out(const struct forward_door *door)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    if (find(door->to, &address, &bytes) != SHOAL_OK)
        return -1;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) != 0 && errno != EINPROGRESS)
        launch_fd_close(&fd);
    return fd;
}

/* Whoever can't be let through sees the end of the connection. */
static enum shoal_status door_ready(void *owner, short events)
{
    struct forward_door *door = owner;
    struct forward_link *link = NULL;
    (void)events;
    int inner = accept4(door->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (inner < 0)
        return SHOAL_OK;
    int outer = connect_out(door);
    if (outer < 0 || BASE_NEW(&link, "a job's connection to outside") != SHOAL_OK) {
        launch_fd_close(&inner);
        launch_fd_close(&outer);
        return SHOAL_OK;
    }
    link->all = door->all;
    link->fds[0] = inner;
    link->fds[1] = outer;
    door->all->links[door->all->link_count++] = link;
    return SHOAL_OK;
}

enum shoal_status forward_add(struct forward *forward, int listen_fd, const char *to)
{
    struct forward_door door = {.all = forward, .listen_fd = listen_fd, .to = to};
    enum shoal_status status = forward_check(to);
    if (status == SHOAL_OK && forward->door_count == FORWARD_DOORS_MAX)
        status =
            base_error(SHOAL_ERR_LIMIT, "a job's network has at most %d doors", FORWARD_DOORS_MAX);
    if (status != SHOAL_OK) {
        close(listen_fd);
        return status;
    }
    forward->doors[forward->door_count++] = door;
    return SHOAL_OK;
}

enum shoal_status forward_watch(struct forward *forward, struct launch_loop *loop)
{
    int kept = 0;
    for (int i = 0; i < forward->link_count; i++) {
        if (is_over(forward->links[i]))
            link_free(forward->links[i]);
        else
            forward->links[kept++] = forward->links[i];
    }
    forward->link_count = kept;
    for (int i = 0; i < kept; i++)
        TRY(watch_link(forward->links[i], loop));
    /* Each door lets at most one in per turn. */
    for (int i = 0; i < forward->door_count && kept + i < FORWARD_LINKS_MAX; i++)
        TRY(launch_loop_add(loop, (struct launch_watch){forward->doors[i].listen_fd, POLLIN,
                                                        door_ready, &forward->doors[i]}));
    return SHOAL_OK;
}

void forward_release(struct forward *forward)
{
    for (int i = 0; i < forward->link_count; i++)
        link_free(forward->links[i]);
    for (int i = 0; i < forward->door_count; i++)
        launch_fd_close(&forward->doors[i].listen_fd);
    *forward = (struct forward){0};
}
