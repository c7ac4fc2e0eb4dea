/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_lowest.c: the lowest rank of a host holds the meeting.
 *
 * Phases: gather (each guest: hello -> proof -> member, in its own time, while strangers come and
 * go) -> hand out regions and eventfds -> collect MAPPED -> hand out lifelines -> collect READY ->
 * verdict. Two rounds, so that this process never has more than three descriptors for a rank.
 * Whatever ends a phase early, every member that is there, or comes a little later, gets the
 * verdict with the same text, so that nobody has to wait for its deadline to learn what happened.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "boot/host_message.h"
#include "net/proof.h"

#define STRANGERS_MAX   64
#define PROVE_MS        5000
#define RANKS_SHOWN_MAX 16
#define OWN_FAILURE_MS                                                         \
    5000 /* how long a lowest rank that failed itself waits to tell the others \
          */
#define VERDICT_MS     1000
#define LATE_GUESTS_MS 3000 /* how long a failed meeting waits for those who do not know it yet */
#define BACKLOG        1024

enum guest_state {
    GUEST_FREE,
    GUEST_HELLO,
    GUEST_PROOF,
    GUEST_PROVEN,
    GUEST_MEMBER,
    GUEST_MAPPED,
    GUEST_READY
};

struct guest {
    int fd;
    enum guest_state state;
    int64_t prove_by_ns;
    struct net_proof proof;
};

struct meeting {
    const struct boot_host_options *options;
    struct boot_host *host;
    int listen_fd;
    struct guest *guests; /* guest_count slots */
    struct pollfd *polls; /* one more than guests; the last is the listener's */
    int *members;         /* [local_size] slot of each local rank's guest, -1: not here yet */
    int guest_count, told_count;
    int lifeline; /* the own end for the members; -1: not made yet */
    bool is_over;
    struct host_message verdict; /* once it is over */
    int64_t deadline_ns;
};

/* ---- guests ---------------------------------------------------------------------------------- */

static void guest_drop(struct guest *guest)
{
    close(guest->fd);
    *guest = (struct guest){.fd = -1, .state = GUEST_FREE};
}

static bool is_stranger(const struct guest *guest)
{
    return guest->state == GUEST_HELLO || guest->state == GUEST_PROOF;
}

/* A free slot; if there is none, the one of the stranger who is here longest. */
static struct guest *guest_slot(struct meeting *meeting)
{
    struct guest *oldest = NULL;
    for (int i = 0; i < meeting->guest_count; i++) {
        struct guest *guest = &meeting->guests[i];
        if (guest->state == GUEST_FREE)
            return guest;
        if (is_stranger(guest) && (oldest == NULL || guest->prove_by_ns < oldest->prove_by_ns))
            oldest = guest;
    }
    guest_drop(oldest); /* there are more slots than members */
    return oldest;
}

static void accept_guests(struct meeting *meeting)
{
    for (;;) {
        int fd = accept4(meeting->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            base_sleep_ms(10);
        if (fd < 0)
            return;
        struct guest *guest = guest_slot(meeting);
        *guest = (struct guest){
            .fd = fd, .state = GUEST_HELLO, .prove_by_ns = base_deadline_ns(PROVE_MS)};
        memcpy(guest->proof.job, meeting->options->job, NET_JOB_BYTES);
        memcpy(guest->proof.secret, meeting->options->secret, NET_SECRET_BYTES);
    }
}

/* A step of the proof; false: a stranger. */
static bool guest_prove(struct guest *guest)
{
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], last[NET_PROOF_BYTES];
    if (guest->state == GUEST_PROOF) {
        guest->state = GUEST_PROVEN;
        return host_bytes_receive(guest->fd, last, sizeof(last), 0) == SHOAL_OK &&
               net_proof_check(&guest->proof, last) == SHOAL_OK;
    }
    guest->state = GUEST_PROOF;
    return host_bytes_receive(guest->fd, hello, sizeof(hello), 0) == SHOAL_OK &&
           net_proof_answer(&guest->proof, hello, answer) == SHOAL_OK &&
           host_bytes_send(guest->fd, answer, sizeof(answer), 0) == SHOAL_OK;
}

/* Who a guest is, in front of the error that concerns it. */
static enum shoal_status member_error(const struct guest *guest, enum shoal_status status)
{
    char peer[64];
    host_peer_describe(guest->fd, peer, sizeof(peer));
    return base_error_context(status, "local rank %d (%s) on host %s", guest->proof.rank_theirs,
                              peer, boot_host_name());
}

/* Places a proven guest at its rank. */
static enum shoal_status member_place(struct meeting *meeting, struct guest *guest)
{
    int rank = guest->proof.rank_theirs;
    if (rank < 1 || rank >= meeting->options->local_size)
        return member_error(guest, base_error(SHOAL_ERR_MISMATCH,
                                              "it counts %d local ranks here otherwise than local "
                                              "rank 0 does",
                                              meeting->options->local_size));
    if (meeting->members[rank] >= 0) {
        char first[64];
        host_peer_describe(meeting->guests[meeting->members[rank]].fd, first, sizeof(first));
        return member_error(guest, base_error(SHOAL_ERR_RANK_TAKEN,
                                              "this rank is taken by another process, %s", first));
    }
    meeting->members[rank] = (int)(guest - meeting->guests);
    return SHOAL_OK;
}

/* The MEMBER message of a proven guest. */
static enum shoal_status member_arrive(struct meeting *meeting, struct guest *guest)
{
    struct host_message message;
    int descriptors[2] = {-1, -1}, count = 2, rank = guest->proof.rank_theirs;
    enum shoal_status status =
        host_message_receive(guest->fd, HOST_MEMBER, &message, descriptors, &count, 0);
    if (status == SHOAL_OK && message.kind != HOST_MEMBER)
        status = base_error(SHOAL_ERR_FORMAT, "an unexpected message");
    else if (status == SHOAL_OK && message.status != SHOAL_OK)
        status = base_error((enum shoal_status)message.status, "%s", message.text);
    else if (status == SHOAL_OK && count != 2)
        status = base_error(SHOAL_ERR_SYSTEM, "its descriptors did not arrive");
    if (status != SHOAL_OK) {
        for (int i = 0; i < count && descriptors[i] >= 0; i++)
            close(descriptors[i]);
        return member_error(guest, status);
    }
    guest->state = GUEST_MEMBER;
    meeting->host->event_fds[rank] = descriptors[1];
    status = base_shared_map(descriptors[0], &meeting->host->regions[rank]);
    return status == SHOAL_OK ? status : member_error(guest, status);
}

/* The MAPPED message of a member, with its lifeline, or the READY message. */
static enum shoal_status member_answer(struct meeting *meeting, struct guest *guest)
{
    struct host_message message;
    bool mapped = guest->state == GUEST_MEMBER;
    enum host_message_kind kind = mapped ? HOST_MAPPED : HOST_READY;
    int lifeline = -1, count = 1;
    enum shoal_status status =
        host_message_receive(guest->fd, kind, &message, &lifeline, &count, 0);
    if (status == SHOAL_OK && message.kind != (int32_t)kind)
        status = base_error(SHOAL_ERR_FORMAT, "an unexpected message");
    else if (status == SHOAL_OK && message.status != SHOAL_OK)
        status = base_error((enum shoal_status)message.status, "%s", message.text);
    else if (status == SHOAL_OK && mapped && count != 1)
        status = base_error(SHOAL_ERR_SYSTEM, "its lifeline did not arrive");
    if (status != SHOAL_OK)
        return member_error(guest, status);
    if (mapped)
        meeting->host->life_fds[guest->proof.rank_theirs] = lifeline;
    guest->state = mapped ? GUEST_MAPPED : GUEST_READY;
    return SHOAL_OK;
}

/* A guest that is gone does not matter any more. */
static void tell_verdict(struct meeting *meeting, struct guest *guest)
{
    host_message_send(guest->fd, &meeting->verdict, NULL, 0, base_deadline_ns(VERDICT_MS));
    meeting->told_count++;
}

/* Something came from a guest. Only members can spoil the meeting. */
static enum shoal_status guest_event(struct meeting *meeting, struct guest *guest)
{
    if (meeting->is_over && !is_stranger(guest))
        return SHOAL_OK;
    switch (guest->state) {
    case GUEST_FREE: return SHOAL_OK;
    case GUEST_HELLO:
    case GUEST_PROOF:
        if (!guest_prove(guest))
            guest_drop(guest);
        else if (guest->state == GUEST_PROVEN && meeting->is_over)
            tell_verdict(meeting, guest);
        else if (guest->state == GUEST_PROVEN)
            return member_place(meeting, guest);
        return SHOAL_OK;
    case GUEST_PROVEN: return member_arrive(meeting, guest);
    case GUEST_MEMBER:
    case GUEST_MAPPED: return member_answer(meeting, guest);
    case GUEST_READY:
        return member_error(guest, base_error(SHOAL_ERR_PEER_LOST, "the process ended"));
    }
    return SHOAL_OK;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Waits for anything, at most until the deadline or a stranger's time, and handles it. */
static enum shoal_status meeting_step(struct meeting *meeting)
{
    int64_t until_ns = meeting->deadline_ns, now_ns = base_now_ns();
    for (int i = 0; i < meeting->guest_count; i++) {
        struct guest *guest = &meeting->guests[i];
        if (is_stranger(guest) && guest->prove_by_ns <= now_ns)
            guest_drop(guest);
        else if (is_stranger(guest) && guest->prove_by_ns < until_ns)
            until_ns = guest->prove_by_ns;
        bool heard = !meeting->is_over || is_stranger(guest);
        meeting->polls[i] = (struct pollfd){.fd = heard ? guest->fd : -1, .events = POLLIN};
    }
    struct pollfd *listener = &meeting->polls[meeting->guest_count];
    *listener = (struct pollfd){.fd = meeting->listen_fd, .events = POLLIN};
    int ready = poll(meeting->polls, (nfds_t)meeting->guest_count + 1, base_left_ms(until_ns));
    if (ready < 0 && errno != EINTR)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "poll on this host's meeting");
    if (ready <= 0)
        return SHOAL_OK;
    for (int i = 0; i < meeting->guest_count; i++) {
        if (meeting->polls[i].revents != 0)
            TRY(guest_event(meeting, &meeting->guests[i]));
    }
    if (listener->revents != 0)
        accept_guests(meeting);
    return SHOAL_OK;
}

/* Names the ranks whose guest has not come as far as `state`. */
static enum shoal_status late_error(const struct meeting *meeting, enum guest_state state,
                                    const char *what)
{
    char list[160] = "";
    int late = 0;
    for (int rank = 1; rank < meeting->options->local_size; rank++) {
        int slot = meeting->members[rank];
        if (slot >= 0 && meeting->guests[slot].state >= state)
            continue;
        size_t used = strlen(list);
        if (late++ < RANKS_SHOWN_MAX)
            snprintf(list + used, sizeof(list) - used, "%s%d", used > 0 ? ", " : "", rank);
    }
    char more[32] = "";
    if (late > RANKS_SHOWN_MAX)
        snprintf(more, sizeof(more), " and %d more", late - RANKS_SHOWN_MAX);
    return base_error(SHOAL_ERR_TIMEOUT,
                      "local ranks %s%s of %d on host %s %s; if they cannot see this process's "
                      "sockets, give them another SHOAL_HOST_ID",
                      list, more, meeting->options->local_size, boot_host_name(), what);
}

/* Until all members have come as far as `state`. */
static enum shoal_status wait_for_members(struct meeting *meeting, enum guest_state state,
                                          const char *what)
{
    for (int rank = 1; rank < meeting->options->local_size;) {
        int slot = meeting->members[rank];
        if (slot >= 0 && meeting->guests[slot].state >= state) {
            rank++;
            continue;
        }
        if (base_left_ms(meeting->deadline_ns) == 0)
            return late_error(meeting, state, what);
        TRY(meeting_step(meeting));
    }
    return SHOAL_OK;
}

/* One message's worth of descriptors for ranks from `first` on; returns how many. */
static int fill_batch(const struct meeting *meeting, struct host_message *message, int first,
                      int descriptors[HOST_DESCRIPTORS_MAX])
{
    const struct boot_host *host = meeting->host;
    int width = message->kind == HOST_SET ? 2 : 1, filled = 0;
    message->first = first;
    for (; first < host->local_size && filled + width <= HOST_DESCRIPTORS_MAX; first++) {
        if (message->kind == HOST_SET) {
            descriptors[filled++] = host->regions[first].fd;
            descriptors[filled++] = host->event_fds[first];
        } else {
            descriptors[filled++] = first == 0 ? meeting->lifeline : host->life_fds[first];
        }
    }
    message->count = filled / width;
    return filled;
}

/* Sends each member all descriptors of a kind: HOST_SET or HOST_LIVES. */
static enum shoal_status hand_out(struct meeting *meeting, enum host_message_kind kind)
{
    struct host_message message;
    int descriptors[HOST_DESCRIPTORS_MAX], size = meeting->options->local_size;
    host_message_make(&message, kind, SHOAL_OK);
    for (int rank = 1; rank < size; rank++)
        for (int first = 0; first < size; first += message.count) {
            struct guest *guest = &meeting->guests[meeting->members[rank]];
            int count = fill_batch(meeting, &message, first, descriptors);
            enum shoal_status status =
                host_message_send(guest->fd, &message, descriptors, count, meeting->deadline_ns);
            if (status != SHOAL_OK)
                return member_error(guest, status);
        }
    return SHOAL_OK;
}

static enum shoal_status share(struct meeting *meeting)
{
    static const char stopped[] = "stopped answering while sharing memory";
    TRY(hand_out(meeting, HOST_SET));
    host_regions_mapped(meeting->host);
    TRY(wait_for_members(meeting, GUEST_MAPPED, stopped));
    TRY(host_life_make(meeting->host, &meeting->lifeline));
    TRY(hand_out(meeting, HOST_LIVES));
    return wait_for_members(meeting, GUEST_READY, stopped);
}

/* Tells all who are proven; and, if the meeting failed, those who come a little later too. */
static void give_verdict(struct meeting *meeting, enum shoal_status status)
{
    host_message_make(&meeting->verdict, HOST_VERDICT, status);
    meeting->is_over = true;
    for (int i = 0; i < meeting->guest_count; i++) {
        if (meeting->guests[i].state >= GUEST_PROVEN)
            tell_verdict(meeting, &meeting->guests[i]);
    }
    if (status == SHOAL_OK)
        return;
    meeting->deadline_ns = base_deadline_ns(status == SHOAL_ERR_TIMEOUT ? 0 : LATE_GUESTS_MS);
    while (meeting->told_count < meeting->options->local_size - 1 &&
           base_left_ms(meeting->deadline_ns) > 0 && meeting_step(meeting) == SHOAL_OK) {}
    base_error(status, "%s", meeting->verdict.text);
}

/* ---- the meeting ----------------------------------------------------------------------------- */

static enum shoal_status meeting_listen(struct meeting *meeting)
{
    struct sockaddr_un name;
    socklen_t bytes = host_socket_name(meeting->options, &name);
    meeting->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (meeting->listen_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "socket for this host's meeting");
    if (bind(meeting->listen_fd, (const struct sockaddr *)&name, bytes) != 0 && errno == EADDRINUSE)
        return base_error(SHOAL_ERR_RANK_TAKEN,
                          "another process on host %s is local rank 0 of this job already (socket "
                          "@%s)",
                          boot_host_name(), name.sun_path + 1);
    if (listen(meeting->listen_fd, BACKLOG) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "listen for this host's meeting");
    return SHOAL_OK;
}

static enum shoal_status meeting_open(struct meeting *meeting)
{
    int local_size = meeting->options->local_size;
    meeting->guest_count = local_size + STRANGERS_MAX;
    TRY(BASE_NEW_ARRAY(&meeting->guests, meeting->guest_count, "this host's meeting"));
    for (int i = 0; i < meeting->guest_count; i++)
        meeting->guests[i].fd = -1;
    TRY(BASE_NEW_ARRAY(&meeting->polls, meeting->guest_count + 1, "this host's meeting"));
    TRY(BASE_NEW_ARRAY(&meeting->members, local_size, "this host's meeting"));
    for (int i = 0; i < local_size; i++)
        meeting->members[i] = -1;
    return meeting_listen(meeting);
}

static void meeting_close(struct meeting *meeting)
{
    for (int i = 0; meeting->guests != NULL && i < meeting->guest_count; i++) {
        if (meeting->guests[i].fd >= 0)
            close(meeting->guests[i].fd);
    }
    if (meeting->listen_fd >= 0)
        close(meeting->listen_fd);
    if (meeting->lifeline >= 0)
        close(meeting->lifeline);
    base_free(meeting->guests);
    base_free(meeting->polls);
    base_free(meeting->members);
}

enum shoal_status host_meet_as_lowest(const struct boot_host_options *options,
                                      enum shoal_status prepared, struct boot_host *host)
{
    struct meeting meeting = {.options = options,
                              .host = host,
                              .listen_fd = -1,
                              .lifeline = -1,
                              .deadline_ns = options->deadline_ns};
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    if (prepared != SHOAL_OK && base_left_ms(meeting.deadline_ns) > OWN_FAILURE_MS)
        meeting.deadline_ns = base_deadline_ns(OWN_FAILURE_MS);
    enum shoal_status status = meeting_open(&meeting);
    if (status == SHOAL_OK) {
        status = wait_for_members(&meeting, GUEST_MEMBER, "did not come to share memory");
        if (prepared != SHOAL_OK)
            status = base_error(prepared, "local rank 0 on host %s: %s", boot_host_name(), text);
        if (status == SHOAL_OK)
            status = share(&meeting);
        give_verdict(&meeting, status);
    }
    meeting_close(&meeting);
    return status;
}
