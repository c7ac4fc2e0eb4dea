/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_link.c: connecting to the store.
 *
 * Rounds: in each, every address of every name is tried once; between rounds a short pause that
 * grows. The causes of the last round are what the error tells. A server that answers with another
 * secret may be the last job's, about to end, so it is tried again for a few seconds; after that
 * it is refused at once instead of at the deadline.
 */
#include "boot/store_link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/address.h"
#include "net/proof.h"

#define ATTEMPT_MS       3000 /* one address: to connect, and to prove */
#define REFUSED_MS       5000 /* how long another secret is tried again */
#define PAUSE_MS_FIRST   20
#define PAUSE_MS_MAX     500
#define CAUSES_BYTES     640
#define LIST_ENTRY_BYTES 300

/* One attempt after the other, and what came of them. */
struct search {
    const unsigned char *secret;
    int64_t deadline_ns;
    char causes[CAUSES_BYTES]; /* of this round: "address: why; …" */
    int refused, tried, loopback;
};

static int earlier(int64_t deadline_ns, int at_most_ms)
{
    int left = base_left_ms(deadline_ns);
    return left < at_most_ms ? left : at_most_ms;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum shoal_status wait_for(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = events};
        int left_ms = base_left_ms(deadline_ns);
        int ready = poll(&one, 1, deadline_ns == BASE_NO_DEADLINE ? -1 : left_ms);
        if (ready > 0)
            return SHOAL_OK;
        if (ready < 0 && errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "poll on the store's socket");
        if (ready == 0 && left_ms == 0)
            return base_error(SHOAL_ERR_TIMEOUT, "the store did not answer in time");
    }
}

static enum shoal_status lost(int cause)
{
    if (cause == 0)
        return base_error(SHOAL_ERR_PEER_LOST, "the store closed the connection");
    return base_error_errno(SHOAL_ERR_PEER_LOST, cause, "the connection to the store broke");
}

enum shoal_status store_link_wait(int fd, int64_t deadline_ns)
{
    return wait_for(fd, POLLIN, deadline_ns);
}

enum shoal_status store_link_send(int fd, const void *data, size_t bytes, int64_t deadline_ns)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = send(fd, at, bytes, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return lost(errno);
        if (done < 0) {
            TRY(wait_for(fd, POLLOUT, deadline_ns));
            continue;
        }
        at += done;
        bytes -= (size_t)done;
    }
    return SHOAL_OK;
}

enum shoal_status store_link_receive(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t done = recv(fd, at, bytes, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0 || (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            return lost(done == 0 ? 0 : errno);
        if (done < 0) {
            TRY(wait_for(fd, POLLIN, deadline_ns));
            continue;
        }
        at += done;
        bytes -= (size_t)done;
    }
    return SHOAL_OK;
}

/* ---- one address ----------------------------------------------------------------------------- */

static enum shoal_status connect_socket(int fd, const struct addrinfo *address, int64_t deadline_ns)
{
    int cause = 0, on = 1;
    socklen_t bytes = sizeof(cause);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        cause = errno;
        if (cause == EINPROGRESS) {
            if (wait_for(fd, POLLOUT, deadline_ns) != SHOAL_OK)
                return base_error(SHOAL_ERR_PEER_UNREACHABLE, "no answer");
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &bytes);
        }
    }
    if (cause != 0) {
        char reason[128];
        return base_error(SHOAL_ERR_PEER_UNREACHABLE, "%s",
                          strerror_r(cause, reason, sizeof(reason)));
    }
    return SHOAL_OK;
}

static enum shoal_status prove(int fd, const unsigned char *secret, int64_t deadline_ns)
{
    struct net_proof proof = {.rank_mine = -1, .rank_theirs = -1};
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], last[NET_PROOF_BYTES];
    memcpy(proof.secret, secret, NET_SECRET_BYTES);
    TRY(net_proof_hello(&proof, hello));
    TRY(store_link_send(fd, hello, sizeof(hello), deadline_ns));
    TRY(store_link_receive(fd, answer, sizeof(answer), deadline_ns));
    TRY(net_proof_check_answer(&proof, answer, last));
    return store_link_send(fd, last, sizeof(last), deadline_ns);
}

/* A socket that connects within this machine may be given the very port it connects to and meet
 * itself. */
static bool met_itself(int fd)
{
    struct sockaddr_storage mine = {0}, theirs = {0};
    socklen_t mine_bytes = sizeof(mine), theirs_bytes = sizeof(theirs);
    return getsockname(fd, (struct sockaddr *)&mine, &mine_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&theirs, &theirs_bytes) == 0 &&
           mine_bytes == theirs_bytes && memcmp(&mine, &theirs, mine_bytes) == 0;
}

static enum shoal_status try_address(const struct search *search, const struct addrinfo *address,
                                     int *out)
{
    int64_t deadline_ns = base_deadline_ns(earlier(search->deadline_ns, ATTEMPT_MS));
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "socket");
    enum shoal_status status = connect_socket(fd, address, deadline_ns);
    if (status == SHOAL_OK && met_itself(fd))
        status = base_error(SHOAL_ERR_PEER_UNREACHABLE, "nobody listens there yet");
    if (status == SHOAL_OK) {
        status = prove(fd, search->secret, deadline_ns);
        if (status == SHOAL_ERR_TIMEOUT)
            base_error(status, "something took the connection but did not answer as a store does");
        else if (status == SHOAL_ERR_PEER_LOST)
            base_error(status, "something took the connection and closed it again");
    }
    if (status != SHOAL_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return SHOAL_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void add_cause(struct search *search, const char *where, const char *why)
{
    size_t used = strlen(search->causes);
    snprintf(search->causes + used, sizeof(search->causes) - used, "%s%s: %s", used > 0 ? "; " : "",
             where, why);
}

/* Notes why an address failed. */
static void note_failure(struct search *search, const char *host, const struct addrinfo *address,
                         enum shoal_status status)
{
    char text[BOOT_ADDRESS_TEXT_BYTES], where[BOOT_ADDRESS_TEXT_BYTES + 32];
    boot_address_format(address->ai_addr, text);
    bool loopback = boot_address_is_loopback(address->ai_addr);
    search->tried++;
    search->refused += status == SHOAL_ERR_PEER_REFUSED;
    search->loopback += loopback && !boot_address_host_is_loopback(host);
    snprintf(where, sizeof(where), "%s%s", text, loopback ? " (this host itself)" : "");
    add_cause(search, where, base_error_text());
}

/* Tries all addresses of one "host:port". */
static enum shoal_status try_name(struct search *search, const char *name, int *fd)
{
    char host[BOOT_ADDRESS_HOST_BYTES], service[16];
    int port;
    TRY(boot_address_split(name, host, &port));
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof(service), "%d", port);
    int result = getaddrinfo(host, service, &hints, &found);
    if (result != 0) {
        search->tried++;
        add_cause(search, host, result == EAI_SYSTEM ? strerror(errno) : gai_strerror(result));
        return SHOAL_ERR_PEER_UNREACHABLE;
    }
    enum shoal_status status = SHOAL_ERR_PEER_UNREACHABLE;
    for (struct addrinfo *at = found; at != NULL && status != SHOAL_OK; at = at->ai_next) {
        status = try_address(search, at, fd);
        if (status != SHOAL_OK)
            note_failure(search, host, at, status);
    }
    freeaddrinfo(found);
    return status;
}

/* One round over the list; SHOAL_ERR_ARGUMENT if an entry can't be read. */
static enum shoal_status try_list(struct search *search, const char *list, int *fd)
{
    enum shoal_status status = SHOAL_ERR_PEER_UNREACHABLE;
    search->causes[0] = '\0';
    search->refused = search->tried = search->loopback = 0;
    for (const char *at = list; status != SHOAL_OK && status != SHOAL_ERR_ARGUMENT;) {
        char entry[LIST_ENTRY_BYTES];
        size_t bytes = strcspn(at, ",");
        if (bytes >= sizeof(entry))
            return base_error(SHOAL_ERR_ARGUMENT, "the store's address \"%.60s…\" is too long", at);
        memcpy(entry, at, bytes);
        entry[bytes] = '\0';
        status = try_name(search, entry, fd);
        if (at[bytes] == '\0')
            break;
        at += bytes + 1;
    }
    return status;
}

static enum shoal_status failure(const struct search *search, const char *list)
{
    if (search->refused > 0)
        return base_error(SHOAL_ERR_PEER_REFUSED,
                          "the store at %s refuses this process: %s (is SHOAL_SECRET the same on "
                          "all ranks, and the port not another job's?)",
                          list, search->causes);
    if (search->loopback > 0 && search->loopback == search->tried)
        return base_error(SHOAL_ERR_PEER_UNREACHABLE,
                          "cannot reach the store at %s: on host %s this name resolves to this "
                          "host itself (%s); if the store is on another host, give a name or "
                          "address that leads there, or mend /etc/hosts here",
                          list, base_host_name(), search->causes);
    return base_error(SHOAL_ERR_PEER_UNREACHABLE, "cannot reach the store at %s from host %s (%s)",
                      list, base_host_name(), search->causes);
}

enum shoal_status store_link_open(const char *addresses, const unsigned char *secret,
                                  int64_t deadline_ns, int *fd)
{
    struct search search = {.secret = secret, .deadline_ns = deadline_ns};
    int64_t refused_until_ns = BASE_NO_DEADLINE;
    int pause_ms = PAUSE_MS_FIRST;
    for (;;) {
        enum shoal_status status = try_list(&search, addresses, fd);
        if (status == SHOAL_OK || status == SHOAL_ERR_ARGUMENT)
            return status;
        if (search.refused == 0)
            refused_until_ns = BASE_NO_DEADLINE;
        else if (refused_until_ns == BASE_NO_DEADLINE)
            refused_until_ns = base_deadline_ns(REFUSED_MS);
        /* A round without time would only find that it has none. */
        if (base_left_ms(deadline_ns) < pause_ms + PAUSE_MS_FIRST ||
            base_now_ns() >= refused_until_ns)
            return failure(&search, addresses);
        base_sleep_ms(pause_ms);
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
}
