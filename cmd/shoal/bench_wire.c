/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_wire.c: raw TCP between hosts. The addresses travel through the group that is measured; a
 * token that travels with them tells own connections from strangers'. Of several interfaces those
 * at the same place in the hosts' lists belong together, as on hosts that are alike.
 */
#include "bench_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/address.h"

#define CONNECT_TIMEOUT_MS  20000
#define EXCHANGE_TIMEOUT_MS 60000
#define TOKEN_BYTES         16

/* What each rank tells the others. */
struct announcement {
    int32_t host;
    int32_t leads; /* the first rank of its host */
    int32_t address_count;
    struct sockaddr_in addresses[BENCH_STREAMS_MAX];
    unsigned char token[TOKEN_BYTES];
};

/* First bytes on a new connection. */
struct hello {
    unsigned char token[TOKEN_BYTES];
    int32_t host;
    int32_t stream;
};

/* One socket's share of a flow. */
struct lane {
    int fd;
    const unsigned char *send;
    unsigned char *receive;
    uint64_t send_left, receive_left;
};

struct bench_wire {
    int host, host_count;
    bool leads;
    unsigned char token[TOKEN_BYTES];
    int address_count;
    struct sockaddr_in addresses[BENCH_STREAMS_MAX]; /* own */
    int *fds;           /* [host_count * BENCH_STREAMS_MAX], -1: none */
    struct lane *lanes; /* the same */
    struct pollfd *polls;
};

/* ---- addresses
 * ------------------------------------------------------------------------------------ */

/* Whether an interface is among those that the option names. */
static bool interface_fits(const struct ifaddrs *entry, const char *wanted)
{
    char text[INET_ADDRSTRLEN];
    const struct sockaddr_in *address = (const struct sockaddr_in *)(const void *)entry->ifa_addr;
    return wanted == NULL || (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != NULL &&
                              boot_address_is_named(entry->ifa_name, text, wanted));
}

static bool is_usable(const struct ifaddrs *entry)
{
    return entry->ifa_addr != NULL && entry->ifa_addr->sa_family == AF_INET &&
           (entry->ifa_flags & IFF_LOOPBACK) == 0 && (entry->ifa_flags & IFF_UP) != 0 &&
           interface_fits(entry, base_option_text(OPTION_INTERFACE));
}

/* The IPv4 addresses by which other hosts reach this one: one of each interface that the option
 * names, or one. */
static enum shoal_status find_own_addresses(struct announcement *own)
{
    struct ifaddrs *list;
    const char *last = "";
    int most = base_option_text(OPTION_INTERFACE) != NULL ? BENCH_STREAMS_MAX : 1;
    if (getifaddrs(&list) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "listing the network interfaces");
    for (struct ifaddrs *entry = list; entry != NULL && own->address_count < most;
         entry = entry->ifa_next) {
        if (!is_usable(entry) || strcmp(entry->ifa_name, last) == 0)
            continue;
        memcpy(&own->addresses[own->address_count++], entry->ifa_addr, sizeof(own->addresses[0]));
        last = entry->ifa_name;
    }
    freeifaddrs(list);
    if (own->address_count == 0)
        return base_error(SHOAL_ERR_SYSTEM, "this host has no IPv4 interface but loopback for the "
                                            "roof's sockets; use --no-roof");
    return SHOAL_OK;
}

static enum shoal_status open_listener(struct announcement *own, int *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    TRY(find_own_addresses(own));
    if (own->address_count == 1)
        at.sin_addr = own->addresses[0].sin_addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, error, "opening a socket for the roof");
    }
    for (int i = 0; i < own->address_count; i++)
        own->addresses[i].sin_port = at.sin_port;
    *out = fd;
    return SHOAL_OK;
}

/* ---- connections
 * ----------------------------------------------------------------------------------- */

static enum shoal_status wait_ready(int fd, short events, int64_t deadline_ns, const char *what)
{
    struct pollfd poller = {.fd = fd, .events = events};
    int ready;
    while ((ready = poll(&poller, 1, base_left_ms(deadline_ns))) < 0 && errno == EINTR)
        continue;
    if (ready <= 0)
        return base_error(SHOAL_ERR_TIMEOUT, "%s took too long", what);
    return SHOAL_OK;
}

static enum shoal_status read_hello(int fd, int64_t deadline_ns, struct hello *hello)
{
    size_t got = 0;
    while (got < sizeof(*hello)) {
        TRY(wait_ready(fd, POLLIN, deadline_ns, "the first message of a roof connection"));
        ssize_t some = recv(fd, (char *)hello + got, sizeof(*hello) - got, 0);
        if (some == 0 || (some < 0 && errno != EAGAIN && errno != EINTR))
            return base_error(SHOAL_ERR_PEER_LOST, "a roof connection was closed");
        got += some > 0 ? (size_t)some : 0;
    }
    return SHOAL_OK;
}

static void tune_socket(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Ties a stream to its own interface's address; the route decides where that is not possible. */
static void leave_by(const struct bench_wire *wire, int fd, int stream)
{
    struct sockaddr_in own = wire->addresses[stream % wire->address_count];
    own.sin_port = 0;
    if (wire->address_count > 1)
        (void)!bind(fd, (struct sockaddr *)&own, sizeof(own));
}

static enum shoal_status connect_stream(struct bench_wire *wire, const struct announcement *peer,
                                        int stream, int64_t deadline_ns)
{
    const struct sockaddr_in *address = &peer->addresses[stream % peer->address_count];
    struct hello hello = {.host = wire->host, .stream = stream};
    int error = 0;
    socklen_t bytes = sizeof(error);
    memcpy(hello.token, wire->token, TOKEN_BYTES);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening a socket for the roof");
    wire->fds[peer->host * BENCH_STREAMS_MAX + stream] = fd;
    tune_socket(fd);
    leave_by(wire, fd, stream);
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
        errno != EINPROGRESS)
        return base_error_errno(SHOAL_ERR_PEER_UNREACHABLE, errno, "roof: connecting to host %d",
                                peer->host);
    TRY(wait_ready(fd, POLLOUT, deadline_ns, "connecting for the roof"));
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0)
        return base_error_errno(SHOAL_ERR_PEER_UNREACHABLE, error, "roof: connecting to host %d",
                                peer->host);
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
        return base_error_errno(SHOAL_ERR_PEER_LOST, errno, "roof: greeting host %d", peer->host);
    return SHOAL_OK;
}

/* Takes one connection; a stranger's is closed and *taken stays. */
static enum shoal_status accept_stream(struct bench_wire *wire, int listener, int64_t deadline_ns,
                                       int *taken)
{
    struct hello hello;
    TRY(wait_ready(listener, POLLIN, deadline_ns, "waiting for the roof's connections"));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return SHOAL_OK;
    enum shoal_status status = read_hello(fd, deadline_ns, &hello);
    bool good = status == SHOAL_OK && memcmp(hello.token, wire->token, TOKEN_BYTES) == 0 &&
                hello.host >= 0 && hello.host < wire->host_count && hello.stream >= 0 &&
                hello.stream < BENCH_STREAMS_MAX &&
                wire->fds[hello.host * BENCH_STREAMS_MAX + hello.stream] < 0;
    if (!good) {
        close(fd);
        return SHOAL_OK;
    }
    tune_socket(fd);
    wire->fds[hello.host * BENCH_STREAMS_MAX + hello.stream] = fd;
    (*taken)++;
    return SHOAL_OK;
}

/* Each host connects to those before it and is connected by those behind it. */
static enum shoal_status connect_all(struct bench_wire *wire, const struct announcement *all,
                                     int rank_count, int listener)
{
    int64_t deadline_ns = base_deadline_ns(CONNECT_TIMEOUT_MS);
    int expected = (wire->host_count - 1 - wire->host) * BENCH_STREAMS_MAX, taken = 0;
    for (int rank = 0; rank < rank_count; rank++) {
        if (!all[rank].leads || all[rank].host >= wire->host)
            continue;
        for (int stream = 0; stream < BENCH_STREAMS_MAX; stream++)
            TRY(connect_stream(wire, &all[rank], stream, deadline_ns));
    }
    while (taken < expected)
        TRY(accept_stream(wire, listener, deadline_ns, &taken));
    return SHOAL_OK;
}

/* Tells all ranks about all, opens the connections. */
static enum shoal_status meet(struct bench_wire *wire, shoal_group_t group,
                              struct announcement *all)
{
    struct announcement own = {.host = wire->host, .leads = wire->leads};
    int listener = -1;
    if (getrandom(own.token, TOKEN_BYTES, 0) != TOKEN_BYTES)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading random bytes");
    enum shoal_status status = wire->leads ? open_listener(&own, &listener) : SHOAL_OK;
    if (status != SHOAL_OK)
        own.leads = 0;
    enum shoal_status told = shoal_allgather(&own, all, sizeof(own), SHOAL_U8, group, NULL);
    if (told == SHOAL_OK && status == SHOAL_OK && wire->leads) {
        memcpy(wire->token, all[0].token, TOKEN_BYTES);
        memcpy(wire->addresses, own.addresses, sizeof(wire->addresses));
        wire->address_count = own.address_count;
        status = connect_all(wire, all, shoal_group_size(group), listener);
    }
    if (listener >= 0)
        close(listener);
    if (told != SHOAL_OK)
        return base_error(told, "%s", shoal_last_error(group));
    return status;
}

static enum shoal_status wire_allocate(shoal_group_t group, struct bench_wire **out)
{
    struct bench_wire *wire;
    TRY(BASE_NEW(&wire, "the roof's sockets"));
    wire->host = shoal_group_host(group);
    wire->host_count = shoal_group_host_count(group);
    wire->leads = shoal_group_local_rank(group) == 0;
    int slots = wire->host_count * BENCH_STREAMS_MAX;
    enum shoal_status status = BASE_NEW_ARRAY(&wire->fds, slots, "the roof's sockets");
    for (int i = 0; status == SHOAL_OK && i < slots; i++)
        wire->fds[i] = -1;
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&wire->lanes, slots, "the roof's sockets");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&wire->polls, slots, "the roof's sockets");
    if (status != SHOAL_OK) {
        bench_wire_free(wire);
        return status;
    }
    *out = wire;
    return SHOAL_OK;
}

enum shoal_status bench_wire_create(shoal_group_t group, struct bench_wire **out)
{
    struct bench_wire *wire;
    struct announcement *all = NULL;
    TRY(wire_allocate(group, &wire));
    enum shoal_status status = BASE_NEW_ARRAY(&all, shoal_group_size(group), "addresses");
    if (status == SHOAL_OK)
        status = meet(wire, group, all);
    base_free(all);
    if (status != SHOAL_OK) {
        bench_wire_free(wire);
        return status;
    }
    *out = wire;
    return SHOAL_OK;
}

void bench_wire_free(struct bench_wire *wire)
{
    if (wire == NULL)
        return;
    for (int i = 0; wire->fds != NULL && i < wire->host_count * BENCH_STREAMS_MAX; i++) {
        if (wire->fds[i] >= 0)
            close(wire->fds[i]);
    }
    base_free(wire->polls);
    base_free(wire->lanes);
    base_free(wire->fds);
    base_free(wire);
}

/* ---- moving bytes
 * ----------------------------------------------------------------------------------- */

/* Cuts `bytes` in `parts` equal pieces, the last one shorter: where piece i begins. */
static uint64_t piece_start(uint64_t bytes, int parts, int i)
{
    uint64_t piece = (bytes + (uint64_t)parts - 1) / (uint64_t)parts, start = piece * (uint64_t)i;
    return start < bytes ? start : bytes;
}

/* One lane per used socket, peers in rotated order so that not all send to the same one first. */
static int lay_lanes(struct bench_wire *wire, const struct bench_flow *flows, int streams)
{
    int count = 0;
    for (int step = 1; step < wire->host_count; step++) {
        int peer = (wire->host + step) % wire->host_count;
        const struct bench_flow *flow = &flows[peer];
        for (int stream = 0; stream < streams; stream++) {
            uint64_t send_at = piece_start(flow->send_bytes, streams, stream);
            uint64_t receive_at = piece_start(flow->receive_bytes, streams, stream);
            wire->lanes[count++] = (struct lane){
                .fd = wire->fds[peer * BENCH_STREAMS_MAX + stream],
                .send = flow->send + send_at,
                .receive = flow->receive + receive_at,
                .send_left = piece_start(flow->send_bytes, streams, stream + 1) - send_at,
                .receive_left = piece_start(flow->receive_bytes, streams, stream + 1) - receive_at};
        }
    }
    return count;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static enum shoal_status move_lane(struct lane *lane)
{
    if (lane->send_left > 0) {
        ssize_t sent = send(lane->fd, lane->send, lane->send_left, MSG_NOSIGNAL);
        if (sent < 0 && !would_block())
            return base_error_errno(SHOAL_ERR_PEER_LOST, errno, "roof: sending");
        if (sent > 0) {
            lane->send += sent;
            lane->send_left -= (uint64_t)sent;
        }
    }
    if (lane->receive_left > 0) {
        ssize_t got = recv(lane->fd, lane->receive, lane->receive_left, 0);
        if (got == 0 || (got < 0 && !would_block()))
            return base_error(SHOAL_ERR_PEER_LOST, "roof: a connection was closed");
        if (got > 0) {
            lane->receive += got;
            lane->receive_left -= (uint64_t)got;
        }
    }
    return SHOAL_OK;
}

/* Poll entries of the lanes that aren't done, which move to the front. */
static int lanes_left(struct bench_wire *wire, int count)
{
    int left = 0;
    for (int i = 0; i < count; i++) {
        struct lane *lane = &wire->lanes[i];
        if (lane->send_left == 0 && lane->receive_left == 0)
            continue;
        wire->polls[left].fd = lane->fd;
        wire->polls[left].events =
            (short)((lane->receive_left > 0 ? POLLIN : 0) | (lane->send_left > 0 ? POLLOUT : 0));
        wire->lanes[left++] = *lane;
    }
    return left;
}

enum shoal_status bench_wire_exchange(struct bench_wire *wire, const struct bench_flow *flows,
                                      int streams)
{
    if (!wire->leads)
        return SHOAL_OK;
    int64_t deadline_ns = base_deadline_ns(EXCHANGE_TIMEOUT_MS);
    int count = lay_lanes(wire, flows, streams);
    for (int i = 0; i < count; i++)
        TRY(move_lane(&wire->lanes[i]));
    while ((count = lanes_left(wire, count)) > 0) {
        int ready = poll(wire->polls, (nfds_t)count, base_left_ms(deadline_ns));
        if (ready == 0)
            return base_error(SHOAL_ERR_TIMEOUT, "roof: nothing moved for %d s",
                              EXCHANGE_TIMEOUT_MS / 1000);
        for (int i = 0; i < count; i++) {
            if (wire->polls[i].revents != 0)
                TRY(move_lane(&wire->lanes[i]));
        }
    }
    return SHOAL_OK;
}
