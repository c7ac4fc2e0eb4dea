/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_greet.c: connections before they are links: three messages of proof and the acceptor's
 * `ready`. Which of two connections wins is told in tcp.h.
 *
 * Connector:  CONNECTING -> ANSWER -> READY -> the link
 * Acceptor:   HELLO -> (PARKED ->) PROOF -> the link
 *
 * Strangers cost little: at most 64 connections are under proof, each for 3 s; a full house first
 * shows the door to whoever has been silent the longest. A frame is never looked at before the
 * proof.
 *
 * A connector tries candidate after candidate, round after round, until the time is over. Where
 * every candidate says no by itself (refused, closed, a wrong proof), it gives up after 2 s: a rank
 * listens before it publishes its address, so nobody there means that its process is gone.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/tcp.h"

#define ACCEPTS_PER_POLL   16
#define PROOF_LIMIT_NS     (3 * BASE_NS_PER_S)    /* for an incoming connection */
#define SILENCE_ALLOWED_NS (250 * BASE_NS_PER_MS) /* before a full house shows it the door */
#define ACCEPT_PAUSE_NS    (50 * BASE_NS_PER_MS)
#define CONNECT_LIMIT_NS   (2 * BASE_NS_PER_S) /* per candidate, if there are others */
#define ANSWER_LIMIT_NS    (5 * BASE_NS_PER_S) /* likewise */
#define ROUND_PAUSE_NS     (200 * BASE_NS_PER_MS)
#define GIVE_UP_NS         (2 * BASE_NS_PER_S)

static const char ready_message[NET_TCP_READY_BYTES] = "shready";

/* ---- messages ---- */

enum intake { INTAKE_PARTIAL, INTAKE_WHOLE, INTAKE_CLOSED };

static enum intake take_message(struct net_tcp_greeting *greeting, size_t bytes)
{
    while (greeting->in_bytes < bytes) {
        ssize_t count = recv(greeting->fd, greeting->in + greeting->in_bytes,
                             bytes - greeting->in_bytes, MSG_DONTWAIT);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return INTAKE_PARTIAL;
        if (count <= 0)
            return INTAKE_CLOSED;
        greeting->in_bytes += (size_t)count;
    }
    greeting->in_bytes = 0;
    return INTAKE_WHOLE;
}

/* Messages are so short that a fresh socket always has room. */
static bool say(const struct net_tcp_greeting *greeting, const void *message, size_t bytes)
{
    return send(greeting->fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void begin(const struct net_tcp *ep, struct net_tcp_greeting *greeting, int fd, int peer,
                  enum net_tcp_step step)
{
    memset(greeting, 0, sizeof(*greeting));
    greeting->fd = fd;
    greeting->step = step;
    greeting->peer = peer;
    greeting->begun_ns = base_now_ns();
    memcpy(greeting->proof.job, ep->options.job, NET_JOB_BYTES);
    memcpy(greeting->proof.secret, ep->options.secret, NET_SECRET_BYTES);
    greeting->proof.rank_mine = ep->options.rank;
    greeting->proof.rank_theirs = peer;
}

/* ---- those that go out ---- */

static bool attempt_is_live(const struct net_tcp_link *link)
{
    return link->opening != NULL && link->opening->attempt.step != NET_TCP_FREE;
}

static void end_attempt(struct net_tcp_opening *opening)
{
    if (opening->attempt.fd >= 0)
        close(opening->attempt.fd);
    opening->attempt.fd = -1;
    opening->attempt.step = NET_TCP_FREE;
}

void net_tcp_end_opening(struct net_tcp_link *link)
{
    if (link->opening == NULL)
        return;
    end_attempt(link->opening);
    base_free(link->opening);
    link->opening = NULL;
}

/* The other end itself refused; waiting won't change its mind. */
static bool says_no(int failure)
{
    return failure == ECONNREFUSED || failure == ECONNRESET || failure == NET_TCP_CLOSED ||
           failure == NET_TCP_IMPOSTOR;
}

/* This host has no way to such an address at all. */
static bool has_no_way(int failure)
{
    return failure == ENETUNREACH || failure == EADDRNOTAVAIL || failure == EAFNOSUPPORT;
}

static const char *failure_text(int failure, char *space, size_t bytes)
{
    switch (failure) {
    case NET_TCP_NOT_TRIED: return "not tried";
    case NET_TCP_CLOSED:
        return "closed during the proof (another job or program, or its process ended)";
    case NET_TCP_IMPOSTOR: return "could not prove that it is this rank of this job";
    case NET_TCP_NO_ANSWER: return "connected, but no answer";
    case NET_TCP_SILENT: return "no answer";
    default: return strerror_r(failure, space, bytes);
    }
}

/* Says which addresses were tried and what each one did. */
static void fail_opening(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_opening *opening = link->opening;
    double seconds = (double)(base_now_ns() - opening->begun_ns) / 1e9;
    enum shoal_status why = SHOAL_ERR_PEER_UNREACHABLE;
    char text[1024], address[NET_TCP_TEXT_BYTES], cause[64];
    size_t used = (size_t)snprintf(text, sizeof(text),
                                   "no link to rank %d within %.1f s:", link->peer, seconds);

    for (int i = 0; i < opening->count; i++) {
        int failure = opening->candidates[i].failure;

        if (failure == NET_TCP_CLOSED || failure == NET_TCP_IMPOSTOR)
            why = SHOAL_ERR_PEER_REFUSED;
        net_tcp_address_text(&opening->candidates[i].address, address);
        if (used < sizeof(text))
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s %s: %s", i > 0 ? ";" : "",
                                 address, failure_text(failure, cause, sizeof(cause)));
    }
    net_tcp_lose(ep, link, why, text);
}

static bool is_hopeless(const struct net_tcp_opening *opening, int64_t now_ns)
{
    int refusals = 0;

    if (now_ns >= opening->deadline_ns)
        return true;
    if (now_ns < opening->begun_ns + GIVE_UP_NS)
        return false;
    for (int i = 0; i < opening->count; i++) {
        int failure = opening->candidates[i].failure;

        if (!says_no(failure) && !has_no_way(failure))
            return false;
        refusals += says_no(failure);
    }
    return refusals > 0;
}

static void answer_parked(struct net_tcp *ep, int slot);
static void try_next(struct net_tcp *ep, struct net_tcp_link *link);

static void fail_attempt(struct net_tcp *ep, struct net_tcp_link *link, int failure)
{
    struct net_tcp_opening *opening = link->opening;

    opening->candidates[opening->next - 1].failure = failure;
    end_attempt(opening);
    if (link->incoming >= 0 && ep->incoming[link->incoming].step == NET_TCP_PARKED)
        answer_parked(ep, link->incoming);
    if (link->incoming < 0)
        try_next(ep, link);
}

static int64_t limit_of(const struct net_tcp_opening *opening, int64_t limit_ns)
{
    int64_t at_ns = base_now_ns() + limit_ns;

    return opening->count > 1 && at_ns < opening->deadline_ns ? at_ns : opening->deadline_ns;
}

static void greet(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_opening *opening = link->opening;
    unsigned char hello[NET_HELLO_BYTES];

    opening->attempt.step = NET_TCP_ANSWER;
    opening->attempt.deadline_ns = limit_of(opening, ANSWER_LIMIT_NS);
    net_tcp_timer_at(ep, opening->attempt.deadline_ns);
    net_tcp_watch(ep, opening->attempt.fd, NET_TCP_OPENING, link->peer, EPOLLIN, false);
    if (net_proof_hello(&opening->attempt.proof, hello) != SHOAL_OK ||
        !say(&opening->attempt, hello, sizeof(hello)))
        fail_attempt(ep, link, NET_TCP_CLOSED);
}

/* Starts an attempt at one candidate; false: it failed at once. */
static bool start_attempt(struct net_tcp *ep, struct net_tcp_link *link,
                          struct net_tcp_candidate *candidate)
{
    struct net_tcp_opening *opening = link->opening;
    const union net_tcp_address *address = &candidate->address;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        candidate->failure = errno;
        return false;
    }
    if (connect(fd, &address->any, net_tcp_address_bytes(address)) != 0 && errno != EINPROGRESS) {
        candidate->failure = errno;
        close(fd);
        return false;
    }
    begin(ep, &opening->attempt, fd, link->peer, NET_TCP_CONNECTING);
    opening->attempt.deadline_ns = limit_of(opening, CONNECT_LIMIT_NS);
    opening->retry_ns = BASE_NO_DEADLINE;
    net_tcp_timer_at(ep, opening->attempt.deadline_ns);
    net_tcp_watch(ep, fd, NET_TCP_OPENING, link->peer, EPOLLOUT, true);
    return true;
}

static void try_next(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_opening *opening = link->opening;
    int64_t now_ns = base_now_ns();

    if (attempt_is_live(link))
        return;
    while (opening->next < opening->count && now_ns < opening->deadline_ns) {
        if (start_attempt(ep, link, &opening->candidates[opening->next++]))
            return;
    }
    opening->next = 0;
    opening->retry_ns = now_ns + ROUND_PAUSE_NS;
    net_tcp_timer_at(ep, is_hopeless(opening, now_ns) ? now_ns : opening->retry_ns);
}

static enum shoal_status candidates_of(const struct net_tcp *ep, int peer,
                                       struct net_tcp_opening *opening)
{
    size_t bytes = ep->address_at != NULL ? ep->address_at[peer + 1] - ep->address_at[peer] : 0;

    if (bytes == 0)
        return base_error(SHOAL_ERR_PEER_UNREACHABLE, "rank %d has no address", peer);
    return net_tcp_read_candidates(ep->addresses + ep->address_at[peer], bytes,
                                   ep->options.interface, opening->candidates, &opening->count);
}

void net_tcp_start_opening(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_opening *opening = NULL;
    enum shoal_status status = BASE_NEW(&opening, "the opening of a tcp link");

    if (status == SHOAL_OK) {
        link->opening = opening;
        link->state = NET_TCP_LINK_OPENING;
        opening->attempt.fd = -1;
        opening->begun_ns = base_now_ns();
        opening->deadline_ns = base_deadline_ns(ep->options.connect_timeout_ms);
        opening->retry_ns = opening->begun_ns;
        status = candidates_of(ep, link->peer, opening);
    }
    if (status != SHOAL_OK) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_UNREACHABLE, base_error_text());
        return;
    }
    net_tcp_timer_at(ep, opening->deadline_ns);
    if (link->incoming < 0)
        try_next(ep, link);
}

static void check_connected(struct net_tcp *ep, struct net_tcp_link *link)
{
    int fd = link->opening->attempt.fd, error = 0;
    socklen_t bytes = sizeof(error);
    union net_tcp_address address;
    socklen_t address_bytes = sizeof(address);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error != 0)
        fail_attempt(ep, link, error);
    else if (getpeername(fd, &address.any, &address_bytes) == 0)
        greet(ep, link);
}

static void take_answer(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_greeting *attempt = &link->opening->attempt;
    unsigned char proof[NET_PROOF_BYTES];

    switch (take_message(attempt, NET_ANSWER_BYTES)) {
    case INTAKE_PARTIAL: return;
    case INTAKE_CLOSED: fail_attempt(ep, link, NET_TCP_CLOSED); return;
    case INTAKE_WHOLE: break;
    }
    if (net_proof_check_answer(&attempt->proof, attempt->in, proof) != SHOAL_OK) {
        fail_attempt(ep, link, NET_TCP_IMPOSTOR);
        return;
    }
    /* From here on it is the right one; the acceptor may hold the link for open any moment. */
    attempt->step = NET_TCP_READY;
    attempt->deadline_ns = link->opening->deadline_ns;
    if (!say(attempt, proof, sizeof(proof)))
        fail_attempt(ep, link, NET_TCP_CLOSED);
}

static void take_ready(struct net_tcp *ep, struct net_tcp_link *link)
{
    struct net_tcp_greeting *attempt = &link->opening->attempt;

    switch (take_message(attempt, NET_TCP_READY_BYTES)) {
    case INTAKE_PARTIAL: return;
    case INTAKE_CLOSED: fail_attempt(ep, link, NET_TCP_CLOSED); return;
    case INTAKE_WHOLE: break;
    }
    if (memcmp(attempt->in, ready_message, NET_TCP_READY_BYTES) != 0)
        fail_attempt(ep, link, NET_TCP_IMPOSTOR);
    else
        net_tcp_stand(ep, link, attempt->fd);
}

void net_tcp_greet_outgoing(struct net_tcp *ep, struct net_tcp_link *link)
{
    if (!attempt_is_live(link))
        return;
    switch (link->opening->attempt.step) {
    case NET_TCP_CONNECTING: check_connected(ep, link); break;
    case NET_TCP_ANSWER: take_answer(ep, link); break;
    case NET_TCP_READY: take_ready(ep, link); break;
    default: break; /* steps of acceptors */
    }
}

void net_tcp_opening_timer(struct net_tcp *ep, struct net_tcp_link *link, int64_t now_ns,
                           int64_t *next_ns)
{
    struct net_tcp_opening *opening = link->opening;
    bool live = attempt_is_live(link), connecting = opening->attempt.step == NET_TCP_CONNECTING;

    if (live && now_ns >= opening->attempt.deadline_ns)
        fail_attempt(ep, link, connecting ? NET_TCP_SILENT : NET_TCP_NO_ANSWER);
    if (link->opening == NULL)
        return;
    if (!attempt_is_live(link) && (link->incoming < 0 || now_ns >= opening->deadline_ns) &&
        is_hopeless(opening, now_ns)) {
        fail_opening(ep, link);
        return;
    }
    if (!attempt_is_live(link) && link->incoming < 0 && now_ns >= opening->retry_ns)
        try_next(ep, link);
    if (attempt_is_live(link) && opening->attempt.deadline_ns < *next_ns)
        *next_ns = opening->attempt.deadline_ns;
    else if (!attempt_is_live(link) && link->incoming < 0 && opening->retry_ns < *next_ns)
        *next_ns = opening->retry_ns;
    if (opening->deadline_ns < *next_ns)
        *next_ns = opening->deadline_ns;
}

/* ---- those that come in ---- */

void net_tcp_drop_incoming(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];
    struct net_tcp_link *link = greeting->peer >= 0 ? &ep->links[greeting->peer] : NULL;

    if (greeting->step == NET_TCP_FREE)
        return;
    if (greeting->fd >= 0)
        close(greeting->fd);
    greeting->fd = -1;
    greeting->step = NET_TCP_FREE;
    ep->incoming_count--;
    net_tcp_accept_again(ep);
    if (link == NULL || link->incoming != slot)
        return;
    link->incoming = -1;
    if (link->opening != NULL && !attempt_is_live(link))
        try_next(ep, link);
}

/* Makes room in a full house; false: everybody in it deserves to be waited for. */
static bool make_room(struct net_tcp *ep)
{
    int64_t now_ns = base_now_ns();
    int oldest = -1;

    if (ep->incoming_count < NET_TCP_INCOMING_MAX)
        return true;
    for (int i = 0; i < NET_TCP_INCOMING_MAX; i++) {
        const struct net_tcp_greeting *greeting = &ep->incoming[i];

        if (greeting->step == NET_TCP_HELLO && now_ns - greeting->begun_ns > SILENCE_ALLOWED_NS &&
            (oldest < 0 || greeting->begun_ns < ep->incoming[oldest].begun_ns))
            oldest = i;
    }
    if (oldest < 0)
        return false;
    net_tcp_drop_incoming(ep, oldest);
    return true;
}

static void pause_accepting(struct net_tcp *ep)
{
    ep->accepting = false;
    net_tcp_watch(ep, ep->listen_fd, NET_TCP_LISTENER, 0, 0, false);
    net_tcp_timer_at(ep, base_now_ns() + ACCEPT_PAUSE_NS);
}

static int take_slot(struct net_tcp *ep, int fd)
{
    int slot = 0;

    while (ep->incoming[slot].step != NET_TCP_FREE)
        slot++;
    begin(ep, &ep->incoming[slot], fd, -1, NET_TCP_HELLO);
    ep->incoming[slot].deadline_ns = ep->incoming[slot].begun_ns + PROOF_LIMIT_NS;
    ep->incoming_count++;
    return slot;
}

void net_tcp_accept(struct net_tcp *ep)
{
    for (int i = 0; i < ACCEPTS_PER_POLL; i++) {
        int fd, slot;

        if (!make_room(ep)) {
            pause_accepting(ep);
            return;
        }
        fd = accept4(ep->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            /* Out of descriptors or memory: the queue stays readable, so look away for a while. */
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                pause_accepting(ep);
            return;
        }
        slot = take_slot(ep, fd);
        net_tcp_timer_at(ep, ep->incoming[slot].deadline_ns);
        net_tcp_watch(ep, fd, NET_TCP_INCOMING, slot, EPOLLIN, true);
        net_tcp_greet_incoming(ep, slot);
    }
}

static void send_answer(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];

    greeting->step = NET_TCP_PROOF;
    greeting->deadline_ns = base_now_ns() + PROOF_LIMIT_NS;
    net_tcp_timer_at(ep, greeting->deadline_ns);
    if (!say(greeting, greeting->answer, sizeof(greeting->answer)))
        net_tcp_drop_incoming(ep, slot);
}

static void answer_parked(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];

    net_tcp_watch(ep, greeting->fd, NET_TCP_INCOMING, slot, EPOLLIN, false);
    send_answer(ep, slot);
}

/* Whether a link to this rank may be opened from its side now. */
static bool is_welcome(const struct net_tcp *ep, int peer)
{
    if (peer < 0 || peer >= ep->options.size || peer == ep->options.rank)
        return false;
    if (ep->address_at != NULL && ep->address_at[peer] == ep->address_at[peer + 1])
        return false;
    return ep->links[peer].state == NET_TCP_LINK_IDLE ||
           ep->links[peer].state == NET_TCP_LINK_OPENING;
}

static void take_hello(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];
    struct net_tcp_link *link;

    if (net_proof_answer(&greeting->proof, greeting->in, greeting->answer) != SHOAL_OK ||
        !is_welcome(ep, greeting->proof.rank_theirs)) {
        base_log(BASE_LOG_DEBUG, "dropped a connection that does not belong here");
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    link = &ep->links[greeting->proof.rank_theirs];
    if (link->incoming >= 0) {
        /* The peer tries anew: its older connection is dead. */
        int older = link->incoming;

        link->incoming = slot;
        net_tcp_drop_incoming(ep, older);
    }
    link->incoming = slot;
    greeting->peer = link->peer;
    if (attempt_is_live(link) && ep->options.rank < link->peer) {
        greeting->step = NET_TCP_PARKED;
        greeting->deadline_ns = BASE_NO_DEADLINE;
        /* Only its end is of interest now, and that epoll always tells. */
        net_tcp_watch(ep, greeting->fd, NET_TCP_INCOMING, slot, EPOLLRDHUP, false);
        return;
    }
    send_answer(ep, slot);
}

static void take_proof(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];

    if (net_proof_check(&greeting->proof, greeting->in) != SHOAL_OK) {
        base_log(BASE_LOG_INFO,
                 "dropped a connection that says it is rank %d but has another secret",
                 greeting->peer);
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    if (!say(greeting, ready_message, sizeof(ready_message))) {
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    net_tcp_stand(ep, &ep->links[greeting->peer], greeting->fd);
}

void net_tcp_greet_incoming(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];
    bool first = greeting->step == NET_TCP_HELLO;

    if (greeting->step == NET_TCP_FREE)
        return;
    if (greeting->step == NET_TCP_PARKED) {
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    switch (take_message(greeting, first ? NET_HELLO_BYTES : NET_PROOF_BYTES)) {
    case INTAKE_PARTIAL: break;
    case INTAKE_CLOSED: net_tcp_drop_incoming(ep, slot); break;
    case INTAKE_WHOLE:
        if (first)
            take_hello(ep, slot);
        else
            take_proof(ep, slot);
        break;
    }
}

void net_tcp_incoming_timers(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns)
{
    for (int i = 0; i < NET_TCP_INCOMING_MAX; i++) {
        struct net_tcp_greeting *greeting = &ep->incoming[i];

        if (greeting->step == NET_TCP_FREE)
            continue;
        if (now_ns >= greeting->deadline_ns)
            net_tcp_drop_incoming(ep, i);
        else if (greeting->deadline_ns < *next_ns)
            *next_ns = greeting->deadline_ns;
    }
}
