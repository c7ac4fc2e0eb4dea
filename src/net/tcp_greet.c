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

static bool attempt_is_live(const struct net_tcp_stream *stream)
{
    return stream->opening != NULL && stream->opening->attempt.step != NET_TCP_FREE;
}

static void end_attempt(struct net_tcp_opening *opening)
{
    if (opening->attempt.fd >= 0)
        close(opening->attempt.fd);
    opening->attempt.fd = -1;
    opening->attempt.step = NET_TCP_FREE;
}

void net_tcp_end_opening(struct net_tcp_stream *stream)
{
    if (stream->opening == NULL)
        return;
    end_attempt(stream->opening);
    base_free(stream->opening);
    stream->opening = NULL;
}

static int number_of(const struct net_tcp_stream *stream)
{
    return stream->link->peer * NET_TCP_STREAMS_MAX + stream->number;
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

/* "rank 3", "rank 3 by eth1, for stream 1": by what and to whom. */
static void opening_text(const struct net_tcp *ep, const struct net_tcp_stream *stream, char *text,
                         size_t bytes)
{
    const struct net_tcp_interfaces *interfaces = &ep->interfaces;
    int used = snprintf(text, bytes, "rank %d", stream->link->peer);

    if (interfaces->way_count > 1)
        used += snprintf(text + used, bytes - (size_t)used, " by %s",
                         interfaces->ways[stream->number % interfaces->way_count]);
    if (stream->number > 0)
        snprintf(text + used, bytes - (size_t)used, ", for stream %d", stream->number);
}

/* Says which addresses were tried and what each one did. */
static void fail_opening(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_opening *opening = stream->opening;
    double seconds = (double)(base_now_ns() - opening->begun_ns) / 1e9;
    enum shoal_status why = SHOAL_ERR_PEER_UNREACHABLE;
    char text[1024], address[NET_TCP_TEXT_BYTES], cause[64], whom[64 + NET_TCP_TEXT_BYTES];
    size_t used;

    opening_text(ep, stream, whom, sizeof(whom));
    used = (size_t)snprintf(text, sizeof(text), "no link to %s within %.1f s:", whom, seconds);
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
    if (stream->optional) {
        net_tcp_give_up_stream(stream, text);
        return;
    }
    net_tcp_say_words(ep, stream->link, NULL, text);
    net_tcp_lose(ep, stream->link, why, text);
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
static void try_next(struct net_tcp *ep, struct net_tcp_stream *stream);

static void fail_attempt(struct net_tcp *ep, struct net_tcp_stream *stream, int failure)
{
    struct net_tcp_opening *opening = stream->opening;
    struct net_tcp_link *link = stream->link;

    opening->candidates[opening->next - 1].failure = failure;
    end_attempt(opening);
    if (link->incoming >= 0 && ep->incoming[link->incoming].step == NET_TCP_PARKED)
        answer_parked(ep, link->incoming);
    if (link->incoming < 0)
        try_next(ep, stream);
}

static int64_t limit_of(const struct net_tcp_opening *opening, int64_t limit_ns)
{
    int64_t at_ns = base_now_ns() + limit_ns;

    return opening->count > 1 && at_ns < opening->deadline_ns ? at_ns : opening->deadline_ns;
}

static void greet(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_opening *opening = stream->opening;
    unsigned char hello[NET_HELLO_BYTES];

    opening->attempt.step = NET_TCP_ANSWER;
    opening->attempt.deadline_ns = limit_of(opening, ANSWER_LIMIT_NS);
    net_tcp_timer_at(ep, opening->attempt.deadline_ns);
    net_tcp_watch(ep, opening->attempt.fd, NET_TCP_OPENING, number_of(stream), EPOLLIN, false);
    if (net_proof_hello(&opening->attempt.proof, hello) != SHOAL_OK ||
        !say(&opening->attempt, hello, sizeof(hello)))
        fail_attempt(ep, stream, NET_TCP_CLOSED);
}

/* Ties a socket to the interface that the candidate's way asks for. 0 or an errno. */
static int tie(int fd, const struct net_tcp_candidate *candidate)
{
    union net_tcp_address source = candidate->source;

    if (!candidate->tied)
        return 0;
    if (source.any.sa_family == AF_UNSPEC)
        return EADDRNOTAVAIL;
    /* Old kernels leave this to root; then the address alone has to do. */
    (void)setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, candidate->interface,
                     (socklen_t)strlen(candidate->interface));
    return bind(fd, &source.any, net_tcp_address_bytes(&source)) == 0 ? 0 : errno;
}

/* Starts an attempt at one candidate; false: it failed at once. */
static bool start_attempt(struct net_tcp *ep, struct net_tcp_stream *stream,
                          struct net_tcp_candidate *candidate)
{
    struct net_tcp_opening *opening = stream->opening;
    const union net_tcp_address *address = &candidate->address;
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    candidate->failure = fd < 0 ? errno : tie(fd, candidate);
    if (candidate->failure == 0 &&
        connect(fd, &address->any, net_tcp_address_bytes(address)) != 0 && errno != EINPROGRESS)
        candidate->failure = errno;
    if (candidate->failure != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    begin(ep, &opening->attempt, fd, stream->link->peer, NET_TCP_CONNECTING);
    opening->attempt.proof.stream = stream->number;
    opening->attempt.deadline_ns = limit_of(opening, CONNECT_LIMIT_NS);
    opening->retry_ns = BASE_NO_DEADLINE;
    net_tcp_timer_at(ep, opening->attempt.deadline_ns);
    net_tcp_watch(ep, fd, NET_TCP_OPENING, number_of(stream), EPOLLOUT, true);
    return true;
}

static void try_next(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_opening *opening = stream->opening;
    int64_t now_ns = base_now_ns();

    if (attempt_is_live(stream))
        return;
    while (opening->next < opening->count && now_ns < opening->deadline_ns) {
        struct net_tcp_candidate *candidate = &opening->candidates[opening->next++];

        if (start_attempt(ep, stream, candidate))
            return;
    }
    opening->next = 0;
    opening->retry_ns = now_ns + ROUND_PAUSE_NS;
    net_tcp_timer_at(ep, is_hopeless(opening, now_ns) ? now_ns : opening->retry_ns);
}

static enum shoal_status candidates_of(const struct net_tcp *ep,
                                       const struct net_tcp_stream *stream,
                                       struct net_tcp_opening *opening)
{
    int peer = stream->link->peer;
    size_t bytes = ep->address_at != NULL ? ep->address_at[peer + 1] - ep->address_at[peer] : 0;

    if (bytes == 0)
        return base_error(SHOAL_ERR_PEER_UNREACHABLE, "rank %d has no address", peer);
    return net_tcp_read_candidates(ep->addresses + ep->address_at[peer], bytes, &ep->interfaces,
                                   stream->number, opening->candidates, &opening->count);
}

void net_tcp_start_opening(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_opening *opening = NULL;
    struct net_tcp_link *link = stream->link;
    enum shoal_status status = BASE_NEW(&opening, "the opening of a tcp link");

    if (status == SHOAL_OK) {
        stream->opening = opening;
        if (link->state == NET_TCP_LINK_IDLE)
            link->state = NET_TCP_LINK_OPENING;
        opening->attempt.fd = -1;
        opening->begun_ns = base_now_ns();
        opening->deadline_ns = base_deadline_ns(ep->options.connect_timeout_ms);
        opening->retry_ns = opening->begun_ns;
        status = candidates_of(ep, stream, opening);
    }
    if (status != SHOAL_OK && stream->optional) {
        net_tcp_give_up_stream(stream, base_error_text());
        return;
    }
    if (status != SHOAL_OK) {
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_UNREACHABLE, base_error_text());
        return;
    }
    net_tcp_timer_at(ep, opening->deadline_ns);
    if (link->incoming < 0)
        try_next(ep, stream);
}

static void check_connected(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    int fd = stream->opening->attempt.fd, error = 0;
    socklen_t bytes = sizeof(error);
    union net_tcp_address address;
    socklen_t address_bytes = sizeof(address);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error != 0)
        fail_attempt(ep, stream, error);
    else if (getpeername(fd, &address.any, &address_bytes) == 0)
        greet(ep, stream);
}

static void take_answer(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_greeting *attempt = &stream->opening->attempt;
    unsigned char proof[NET_PROOF_BYTES];

    switch (take_message(attempt, NET_ANSWER_BYTES)) {
    case INTAKE_PARTIAL: return;
    case INTAKE_CLOSED: fail_attempt(ep, stream, NET_TCP_CLOSED); return;
    case INTAKE_WHOLE: break;
    }
    if (net_proof_check_answer(&attempt->proof, attempt->in, proof) != SHOAL_OK) {
        fail_attempt(ep, stream, NET_TCP_IMPOSTOR);
        return;
    }
    /* From here on it is the right one; the acceptor may hold the link for open any moment. */
    attempt->step = NET_TCP_READY;
    attempt->deadline_ns = stream->opening->deadline_ns;
    if (!say(attempt, proof, sizeof(proof)))
        fail_attempt(ep, stream, NET_TCP_CLOSED);
}

static void take_ready(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    struct net_tcp_greeting *attempt = &stream->opening->attempt;

    switch (take_message(attempt, NET_TCP_READY_BYTES)) {
    case INTAKE_PARTIAL: return;
    case INTAKE_CLOSED: fail_attempt(ep, stream, NET_TCP_CLOSED); return;
    case INTAKE_WHOLE: break;
    }
    if (memcmp(attempt->in, ready_message, NET_TCP_READY_BYTES) != 0)
        fail_attempt(ep, stream, NET_TCP_IMPOSTOR);
    else
        net_tcp_stand(ep, stream, attempt->fd);
}

void net_tcp_greet_outgoing(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    if (!attempt_is_live(stream))
        return;
    switch (stream->opening->attempt.step) {
    case NET_TCP_CONNECTING: check_connected(ep, stream); break;
    case NET_TCP_ANSWER: take_answer(ep, stream); break;
    case NET_TCP_READY: take_ready(ep, stream); break;
    default: break; /* steps of acceptors */
    }
}

void net_tcp_opening_timer(struct net_tcp *ep, struct net_tcp_stream *stream, int64_t now_ns,
                           int64_t *next_ns)
{
    struct net_tcp_opening *opening = stream->opening;
    bool live = attempt_is_live(stream), connecting = opening->attempt.step == NET_TCP_CONNECTING;

    if (live && now_ns >= opening->attempt.deadline_ns)
        fail_attempt(ep, stream, connecting ? NET_TCP_SILENT : NET_TCP_NO_ANSWER);
    if (stream->opening == NULL)
        return;
    if (!attempt_is_live(stream) &&
        (stream->link->incoming < 0 || now_ns >= opening->deadline_ns) &&
        is_hopeless(opening, now_ns)) {
        fail_opening(ep, stream);
        return;
    }
    if (!attempt_is_live(stream) && stream->link->incoming < 0 && now_ns >= opening->retry_ns)
        try_next(ep, stream);
    if (attempt_is_live(stream) && opening->attempt.deadline_ns < *next_ns)
        *next_ns = opening->attempt.deadline_ns;
    else if (!attempt_is_live(stream) && stream->link->incoming < 0 && opening->retry_ns < *next_ns)
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
    if (link->first.opening != NULL && !attempt_is_live(&link->first))
        try_next(ep, &link->first);
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

/* Whether the peer may open another stream of its link. */
static bool is_extra_welcome(const struct net_tcp_link *link, int number)
{
    const struct net_tcp_stream *stream;

    if (link->state != NET_TCP_LINK_STANDING || link->connected_here || number < 1 ||
        number >= NET_TCP_STREAMS_MAX)
        return false;
    stream = link->streams[number];
    return stream == NULL || stream->fd < 0;
}

/* Whether this rank may open that stream from its side now. */
static bool is_welcome(const struct net_tcp *ep, int peer, int number)
{
    if (peer < 0 || peer >= ep->options.size || peer == ep->options.rank)
        return false;
    if (ep->address_at != NULL && ep->address_at[peer] == ep->address_at[peer + 1])
        return false;
    if (number != 0)
        return is_extra_welcome(&ep->links[peer], number);
    return ep->links[peer].state == NET_TCP_LINK_IDLE ||
           ep->links[peer].state == NET_TCP_LINK_OPENING;
}

static void take_hello(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];
    struct net_tcp_link *link;

    if (net_proof_answer(&greeting->proof, greeting->in, greeting->answer) != SHOAL_OK ||
        !is_welcome(ep, greeting->proof.rank_theirs, greeting->proof.stream)) {
        base_log(BASE_LOG_DEBUG, "dropped a connection that does not belong here");
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    link = &ep->links[greeting->proof.rank_theirs];
    greeting->stream = greeting->proof.stream;
    if (greeting->stream > 0) {
        greeting->peer = link->peer;
        send_answer(ep, slot);
        return;
    }
    if (link->incoming >= 0) {
        /* The peer tries anew: its older connection is dead. */
        int older = link->incoming;

        link->incoming = slot;
        net_tcp_drop_incoming(ep, older);
    }
    link->incoming = slot;
    greeting->peer = link->peer;
    if (attempt_is_live(&link->first) && ep->options.rank < link->peer) {
        greeting->step = NET_TCP_PARKED;
        greeting->deadline_ns = BASE_NO_DEADLINE;
        /* Only its end is of interest now, and that epoll always tells. */
        net_tcp_watch(ep, greeting->fd, NET_TCP_INCOMING, slot, EPOLLRDHUP, false);
        return;
    }
    send_answer(ep, slot);
}

/* The connection goes from the greeting to its stream. */
static void let_stand(struct net_tcp *ep, int slot)
{
    struct net_tcp_greeting *greeting = &ep->incoming[slot];
    struct net_tcp_link *link = &ep->links[greeting->peer];
    struct net_tcp_stream *stream;
    int fd = greeting->fd;

    if (greeting->stream > 0 && !is_extra_welcome(link, greeting->stream)) {
        net_tcp_drop_incoming(ep, slot);
        return;
    }
    if (net_tcp_get_stream(link, greeting->stream, &stream) != SHOAL_OK) {
        net_tcp_drop_incoming(ep, slot);
        net_tcp_lose(ep, link, SHOAL_ERR_PEER_LOST, base_error_text());
        return;
    }
    greeting->fd = -1;
    net_tcp_end_opening(stream);
    net_tcp_drop_incoming(ep, slot);
    net_tcp_stand(ep, stream, fd);
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
    let_stand(ep, slot);
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
