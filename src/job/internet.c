/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internet.c: see internet.h. A thread for each connection: looking names up blocks, and there are
 * few of them.
 *
 * A plain request goes on with "Connection: close", so that the server ends the connection after
 * its answer, and no second request, perhaps for another host, comes on it unseen.
 */
#include "job/internet.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/instance_state.h"
#include "launch/process.h"

#define HEAD_BYTES         (16 << 10)
#define HEAD_TIMEOUT_MS    30000
#define CONNECT_TIMEOUT_MS 20000
#define IDLE_TIMEOUT_MS    (30 * 60 * 1000)
#define WAY_BYTES          (32 << 10)
#define STACK_BYTES        (256 << 10)
#define HOST_BYTES         256

struct target {
    char host[HOST_BYTES], port[8];
};

struct link {
    int client_fd, server_fd; /* -1: none */
    bool own_allowed;
    char head[HEAD_BYTES + 1];
    size_t head_bytes; /* with its empty line */
    size_t bytes;      /* with what came behind it */
};

static atomic_int link_count;

/* ---- addresses ---- */

static bool is_refused_4(const struct in_addr *address)
{
    uint32_t number = ntohl(address->s_addr);
    return number >> 24 == 127 || number >> 24 == 0 || number >> 16 == 0xA9FE ||
           number >> 16 == 0x0A4D || number >> 28 >= 0xE;
}

static bool is_refused_6(const struct in6_addr *address)
{
    struct in_addr inner;
    if (IN6_IS_ADDR_V4MAPPED(address) || IN6_IS_ADDR_V4COMPAT(address)) {
        memcpy(&inner, &address->s6_addr[12], sizeof(inner));
        return is_refused_4(&inner);
    }
    return IN6_IS_ADDR_LOOPBACK(address) || IN6_IS_ADDR_UNSPECIFIED(address) ||
           IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MULTICAST(address);
}

static bool is_same(const struct sockaddr *first, const struct sockaddr *second)
{
    if (second == NULL || first->sa_family != second->sa_family)
        return false;
    if (first->sa_family == AF_INET)
        return ((const struct sockaddr_in *)first)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)second)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)first)->sin6_addr,
                  &((const struct sockaddr_in6 *)second)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* Whether it is one of this machine's interfaces; when they can't be listed, yes. */
static bool is_own(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return true;
    bool own = false;
    for (const struct ifaddrs *at = list; at != NULL && !own; at = at->ifa_next)
        own = is_same(address, at->ifa_addr);
    freeifaddrs(list);
    return own;
}

static bool is_refused(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_refused_4(&((const struct sockaddr_in *)address)->sin_addr) || is_own(address);
    if (address->sa_family == AF_INET6)
        return is_refused_6(&((const struct sockaddr_in6 *)address)->sin6_addr) || is_own(address);
    return true;
}

/* ---- connecting ---- */

/* A connected socket, or -1. */
static int connect_one(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd watched = {fd, POLLOUT, 0};
    int failure = 0;
    socklen_t bytes = sizeof(failure);
    if (fd < 0)
        return -1;
    bool good = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ||
                (errno == EINPROGRESS && poll(&watched, 1, CONNECT_TIMEOUT_MS) == 1 &&
                 getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) == 0 && failure == 0);
    if (!good)
        launch_fd_close(&fd);
    return fd;
}

/* -1: not reached; -2: refused. */
static int connect_to(const struct target *target, bool own_allowed)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -1;
    if (getaddrinfo(target->host, target->port, &hints, &list) != 0)
        return -1;
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        if (!own_allowed && is_refused(at->ai_addr))
            fd = -2;
        else
            fd = connect_one(at);
    }
    freeaddrinfo(list);
    return fd;
}

/* ---- heads ---- */

/* Reads to the empty line. */
static bool read_head(struct link *link)
{
    int64_t deadline_ns = base_deadline_ns(HEAD_TIMEOUT_MS);
    while (link->bytes < HEAD_BYTES) {
        struct pollfd watched = {link->client_fd, POLLIN, 0};
        if (poll(&watched, 1, base_left_ms(deadline_ns)) != 1)
            return false;
        ssize_t got = recv(link->client_fd, link->head + link->bytes, HEAD_BYTES - link->bytes, 0);
        if (got <= 0)
            return false;
        link->bytes += (size_t)got;
        link->head[link->bytes] = '\0';
        const char *end = strstr(link->head, "\r\n\r\n");
        if (end != NULL) {
            link->head_bytes = (size_t)(end - link->head) + 4;
            return true;
        }
    }
    return false;
}

/* "host:port", "[::1]:port", "host" of `length` bytes. */
static bool read_target(const char *text, size_t length, const char *port, struct target *out)
{
    const char *end = text + length, *colon = NULL, *host = text;
    if (length == 0 || length >= HOST_BYTES || memchr(text, '@', length) != NULL)
        return false;
    if (*text == '[') {
        const char *bracket = memchr(text, ']', length);
        if (bracket == NULL)
            return false;
        host = text + 1;
        colon = bracket + 1 < end && bracket[1] == ':' ? bracket + 1 : NULL;
        length = (size_t)(bracket - host);
    } else {
        colon = memchr(text, ':', length);
        length = colon != NULL ? (size_t)(colon - text) : length;
    }
    if (colon != NULL && (end - colon - 1 < 1 || end - colon - 1 > 5))
        return false;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)length, host);
    snprintf(out->port, sizeof(out->port), "%.*s",
             colon != NULL ? (int)(end - colon - 1) : (int)strlen(port),
             colon != NULL ? colon + 1 : port);
    return length > 0 && strspn(out->port, "0123456789") == strlen(out->port);
}

static bool send_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        struct pollfd watched = {fd, POLLOUT, 0};
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN && poll(&watched, 1, CONNECT_TIMEOUT_MS) == 1)
            continue;
        if (sent <= 0)
            return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

static bool answer(const struct link *link, const char *status)
{
    char text[256];
    int bytes = snprintf(text, sizeof(text),
                         "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
    return send_all(link->client_fd, text, (size_t)bytes);
}

static bool is_dropped(const char *line)
{
    return strncasecmp(line, "proxy-", 6) == 0 || strncasecmp(line, "connection:", 11) == 0 ||
           strncasecmp(line, "keep-alive:", 11) == 0;
}

/* "GET http://host/path HTTP/1.1" goes on as "GET /path HTTP/1.1". */
static bool send_plain(const struct link *link, const char *path)
{
    const char *space = strchr(link->head, ' '), *end = strstr(link->head, "\r\n");
    bool sent = send_all(link->server_fd, link->head, (size_t)(space + 1 - link->head)) &&
                (*path == '/' || send_all(link->server_fd, "/", 1)) &&
                send_all(link->server_fd, path, (size_t)(end + 2 - path)) &&
                send_all(link->server_fd, "Connection: close\r\n", 19);
    for (const char *line = end + 2; sent && strncmp(line, "\r\n", 2) != 0;) {
        const char *next = strstr(line, "\r\n") + 2;
        if (!is_dropped(line))
            sent = send_all(link->server_fd, line, (size_t)(next - line));
        line = next;
    }
    return sent && send_all(link->server_fd, "\r\n", 2) &&
           send_all(link->server_fd, link->head + link->head_bytes, link->bytes - link->head_bytes);
}

/* ---- one connection ---- */

/* Moves bytes one way; false at its end or when it broke. */
static bool move(int from, int to)
{
    char bytes[WAY_BYTES];
    ssize_t got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    return got > 0 && send_all(to, bytes, (size_t)got);
}

static void tunnel(const struct link *link)
{
    int ends[2] = {link->client_fd, link->server_fd};
    bool open[2] = {true, true};
    while (open[0] || open[1]) {
        struct pollfd watched[2] = {{open[0] ? ends[0] : -1, POLLIN, 0},
                                    {open[1] ? ends[1] : -1, POLLIN, 0}};
        if (poll(watched, 2, IDLE_TIMEOUT_MS) <= 0)
            return;
        for (int i = 0; i < 2; i++) {
            if (watched[i].revents == 0 || move(ends[i], ends[!i]))
                continue;
            open[i] = false;
            shutdown(ends[!i], SHUT_WR);
        }
    }
}

/* The proxy that the machine itself uses, "http://host:port/". */
static bool own_proxy(bool is_connect, struct target *out)
{
    static const char *const names[][2] = {{"http_proxy", "HTTP_PROXY"},
                                           {"https_proxy", "HTTPS_PROXY"}};
    const char *text = getenv(names[is_connect][0]);
    if (text == NULL || *text == '\0')
        text = getenv(names[is_connect][1]);
    if (text == NULL || strncmp(text, "http://", 7) != 0)
        return false;
    return read_target(text + 7, strcspn(text + 7, "/"), "80", out);
}

static bool through_proxy(struct link *link, const struct target *proxy)
{
    link->server_fd = connect_to(proxy, true);
    if (link->server_fd < 0)
        return answer(link, "502 Bad Gateway");
    if (send_all(link->server_fd, link->head, link->bytes))
        tunnel(link);
    return true;
}

static bool through(struct link *link, const struct target *target, const char *path)
{
    link->server_fd = connect_to(target, link->own_allowed);
    if (link->server_fd == -2)
        return answer(link, "403 Forbidden");
    if (link->server_fd < 0)
        return answer(link, "502 Bad Gateway");
    static const char done[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    bool ready = path != NULL ? send_plain(link, path)
                              : send_all(link->client_fd, done, sizeof(done) - 1) &&
                                    send_all(link->server_fd, link->head + link->head_bytes,
                                             link->bytes - link->head_bytes);
    if (ready)
        tunnel(link);
    return ready;
}

static void serve_link(struct link *link)
{
    struct target target, proxy;
    const char *path = NULL;
    if (!read_head(link)) {
        answer(link, "400 Bad Request");
        return;
    }
    const char *space = strchr(link->head, ' '), *line_end = strstr(link->head, "\r\n");
    const char *place = space != NULL && space < line_end ? space + 1 : "";
    bool is_connect = strncmp(link->head, "CONNECT ", 8) == 0, good;
    if (is_connect) {
        good = read_target(place, strcspn(place, " \r\n"), "443", &target);
    } else {
        good = strncasecmp(place, "http://", 7) == 0;
        size_t length = good ? strcspn(place + 7, "/ ?#\r\n") : 0;
        path = good ? place + 7 + length : NULL;
        good = good && read_target(place + 7, length, "80", &target);
    }
    if (!good)
        answer(link, "400 Bad Request");
    else if (own_proxy(is_connect, &proxy))
        through_proxy(link, &proxy);
    else
        through(link, &target, path);
}

static void *link_run(void *argument)
{
    struct link *link = argument;
    serve_link(link);
    launch_fd_close(&link->client_fd);
    if (link->server_fd >= 0)
        close(link->server_fd);
    base_free(link);
    atomic_fetch_sub(&link_count, 1);
    return NULL;
}

/* ---- the process ---- */

static void take_link(int client_fd, bool own_allowed)
{
    struct link *link;
    pthread_attr_t attributes;
    pthread_t thread;
    if (atomic_load(&link_count) >= INTERNET_LINKS_MAX || BASE_NEW(&link, "a link") != SHOAL_OK) {
        close(client_fd);
        return;
    }
    link->client_fd = client_fd;
    link->server_fd = -1;
    link->own_allowed = own_allowed;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_fetch_add(&link_count, 1);
    if (pthread_create(&thread, &attributes, link_run, link) != 0) {
        atomic_fetch_sub(&link_count, 1);
        close(client_fd);
        base_free(link);
    }
    pthread_attr_destroy(&attributes);
}

void internet_serve(int listen_fd, bool own_allowed)
{
    for (;;) {
        int client_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (client_fd >= 0)
            take_link(client_fd, own_allowed);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            poll(NULL, 0, 100);
        else if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
            return;
    }
}

enum shoal_status internet_start(int listen_fd, pid_t *pid)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        sigset_t none;
        int kept[] = {listen_fd};
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGPIPE, SIG_IGN);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        instance_close_all_but(kept, 1);
        if (getppid() == parent)
            internet_serve(listen_fd, false);
        _exit(0);
    }
    int error_number = errno;
    close(listen_fd);
    if (child < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "making a process");
    *pid = child;
    return SHOAL_OK;
}

void internet_end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}
