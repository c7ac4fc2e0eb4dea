/* SPDX-License-Identifier: Apache-2.0 */
/* host_member.c: a rank that is not the lowest of its host meets the others there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "boot/host_message.h"
#include "net/proof.h"

#define PAUSE_MS_MAX     50
#define VERDICT_GRACE_MS 2000 /* the lowest rank's verdict may come a little after the deadline */

static enum shoal_status not_reached(const struct boot_host_options *options, int cause)
{
    char reason[128];
    return base_error(SHOAL_ERR_TIMEOUT,
                      "local rank %d cannot reach local rank 0 on host %s to share memory with it "
                      "(%s): either it did not come, or these processes cannot see each other's "
                      "sockets; then give them different SHOAL_HOST_ID",
                      options->local_rank, boot_host_name(),
                      strerror_r(cause, reason, sizeof(reason)));
}

/* Connects as soon as somebody listens. */
static enum shoal_status connect_to_lowest(const struct boot_host_options *options, int *out)
{
    struct sockaddr_un name;
    socklen_t bytes = host_socket_name(options, &name);
    for (int pause_ms = 1;; pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "socket for this host's meeting");
        if (connect(fd, (const struct sockaddr *)&name, bytes) == 0) {
            *out = fd;
            return SHOAL_OK;
        }
        int cause = errno;
        close(fd);
        if (cause != ECONNREFUSED && cause != EAGAIN && cause != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, cause, "connect to this host's meeting");
        if (base_left_ms(options->deadline_ns) == 0)
            return not_reached(options, cause);
        base_sleep_ms(pause_ms);
    }
}

static enum shoal_status prove(const struct boot_host_options *options, int fd)
{
    struct net_proof proof = {.rank_mine = options->local_rank, .rank_theirs = 0};
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], last[NET_PROOF_BYTES];
    memcpy(proof.job, options->job, NET_JOB_BYTES);
    memcpy(proof.secret, options->secret, NET_SECRET_BYTES);
    TRY(net_proof_hello(&proof, hello));
    TRY(host_bytes_send(fd, hello, sizeof(hello), options->deadline_ns));
    TRY(host_bytes_receive(fd, answer, sizeof(answer), options->deadline_ns));
    TRY(net_proof_check_answer(&proof, answer, last));
    return host_bytes_send(fd, last, sizeof(last), options->deadline_ns);
}

/* Turns a verdict that came into this rank's own error. */
static enum shoal_status take_verdict(const struct host_message *message)
{
    if (message->status == SHOAL_OK)
        return SHOAL_OK;
    return base_error((enum shoal_status)message->status, "%s", message->text);
}

/* Takes what came of a rank over: its region and eventfd, or its lifeline. */
static enum shoal_status adopt(struct boot_host *host, int rank, const int *descriptors, int count)
{
    if (rank == host->local_rank) {
        for (int i = 0; i < count; i++)
            close(descriptors[i]);
        return SHOAL_OK;
    }
    if (count == 1) {
        host->life_fds[rank] = descriptors[0];
        return SHOAL_OK;
    }
    host->event_fds[rank] = descriptors[1];
    return base_shared_map(descriptors[0], &host->regions[rank]);
}

/* Receives one batch, HOST_SET or HOST_LIVES, and adopts it; *next is the rank that should come
 * first. */
static enum shoal_status receive_batch(struct boot_host *host, int fd, enum host_message_kind kind,
                                       int64_t deadline_ns, int *next)
{
    int descriptors[HOST_DESCRIPTORS_MAX], count = HOST_DESCRIPTORS_MAX;
    int width = kind == HOST_SET ? 2 : 1;
    struct host_message message;
    TRY(host_message_receive(fd, kind, &message, descriptors, &count, deadline_ns));
    enum shoal_status status = SHOAL_OK;
    if (message.kind == HOST_VERDICT)
        status = message.status != SHOAL_OK
                     ? take_verdict(&message)
                     : base_error(SHOAL_ERR_FORMAT, "a verdict before the meeting's end");
    else if (message.first != *next || message.count < 1 || count != width * message.count ||
             message.first + message.count > host->local_size)
        status = base_error(SHOAL_ERR_FORMAT, "a wrong set of descriptors from local rank 0");
    int at = 0;
    for (; status == SHOAL_OK && at < count; at += width)
        status = adopt(host, message.first + at / width, descriptors + at, width);
    for (; at < count; at++)
        close(descriptors[at]);
    TRY(status);
    *next += message.count;
    return SHOAL_OK;
}

static enum shoal_status receive_all(struct boot_host *host, int fd, enum host_message_kind kind,
                                     int64_t deadline_ns)
{
    for (int next = 0; next < host->local_size;)
        TRY(receive_batch(host, fd, kind, deadline_ns, &next));
    return SHOAL_OK;
}

/* Says how this rank fares, with a descriptor unless that is -1; returns its own error, if any.
 * Where the meeting has failed already nobody may be there to hear it: the verdict is. */
static enum shoal_status answer(int fd, enum host_message_kind kind, enum shoal_status status,
                                int descriptor, int64_t deadline_ns)
{
    struct host_message message;
    host_message_make(&message, kind, status);
    enum shoal_status sent =
        host_message_send(fd, &message, &descriptor, descriptor >= 0 ? 1 : 0, deadline_ns);
    if (status != SHOAL_OK)
        return base_error(status, "%s", message.text);
    return sent == SHOAL_ERR_PEER_LOST ? SHOAL_OK : sent;
}

/* What comes after this rank's own region has gone out. */
static enum shoal_status take_part(struct boot_host *host, int fd, int64_t deadline_ns)
{
    struct host_message verdict;
    int lifeline = -1;
    enum shoal_status status = receive_all(host, fd, HOST_SET, deadline_ns);
    if (status == SHOAL_OK) {
        host_regions_mapped(host);
        status = host_life_make(host, &lifeline);
    }
    status = answer(fd, HOST_MAPPED, status, lifeline, deadline_ns);
    if (lifeline >= 0)
        close(lifeline);
    TRY(status);
    status = receive_all(host, fd, HOST_LIVES, deadline_ns);
    TRY(answer(fd, HOST_READY, status, -1, deadline_ns));
    TRY(host_message_receive(fd, HOST_VERDICT, &verdict, NULL, NULL, deadline_ns));
    return take_verdict(&verdict);
}

/* This rank's part after the proof. */
static enum shoal_status exchange(const struct boot_host_options *options,
                                  enum shoal_status prepared, struct boot_host *host, int fd)
{
    struct host_message message;
    host_message_make(&message, HOST_MEMBER, prepared);
    int own[2] = {-1, -1};
    if (prepared == SHOAL_OK) {
        own[0] = host->regions[host->local_rank].fd;
        own[1] = host->event_fds[host->local_rank];
    }
    enum shoal_status sent =
        host_message_send(fd, &message, own, prepared == SHOAL_OK ? 2 : 0, options->deadline_ns);
    /* A lowest rank that is gone has left its verdict here. */
    if (sent != SHOAL_OK && sent != SHOAL_ERR_PEER_LOST)
        return sent;
    return take_part(
        host, fd, base_deadline_ns((int64_t)base_left_ms(options->deadline_ns) + VERDICT_GRACE_MS));
}

enum shoal_status host_meet_as_member(const struct boot_host_options *options,
                                      enum shoal_status prepared, struct boot_host *host)
{
    int fd = -1;
    char text[BASE_ERROR_TEXT_BYTES], peer[64];
    snprintf(text, sizeof(text), "%s", base_error_text());
    TRY(connect_to_lowest(options, &fd));
    enum shoal_status status = prove(options, fd);
    if (status == SHOAL_OK) {
        if (prepared != SHOAL_OK)
            base_error(prepared, "%s", text);
        status = exchange(options, prepared, host, fd);
    } else {
        host_peer_describe(fd, peer, sizeof(peer));
        base_error_context(status, "meeting of the ranks on host %s, where %s answers",
                           boot_host_name(), peer);
    }
    close(fd);
    return status;
}
