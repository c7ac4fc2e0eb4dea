/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_message.c: messages with descriptors over a Unix socket (SOCK_SEQPACKET, SCM_RIGHTS).
 *
 * The kernel bounds the descriptors in flight per user; when the receivers are behind, the sender
 * waits a little and tries again.
 */
#include "boot/host_message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define IN_FLIGHT_PAUSE_MS 2

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(HOST_DESCRIPTORS_MAX * sizeof(int))];
};

socklen_t host_socket_name(const struct boot_host_options *options, struct sockaddr_un *out)
{
    char job[2 * NET_JOB_BYTES + 1];
    for (int i = 0; i < NET_JOB_BYTES; i++)
        snprintf(job + 2 * i, 3, "%02x", options->job[i]);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int bytes = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "shoal-%s-%016llx", job,
                         (unsigned long long)options->nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

void host_message_make(struct host_message *message, enum host_message_kind kind,
                       enum shoal_status status)
{
    memset(message, 0, sizeof(*message));
    message->kind = (int32_t)kind;
    message->status = (int32_t)status;
    if (status != SHOAL_OK)
        snprintf(message->text, sizeof(message->text), "%.*s", HOST_TEXT_BYTES - 1,
                 base_error_text());
}

/* Waits for an event; TIMEOUT at the deadline. */
static enum shoal_status wait_for(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = events};
        int left_ms = base_left_ms(deadline_ns);
        int ready = poll(&one, 1, left_ms);
        if (ready > 0)
            return SHOAL_OK;
        if (ready < 0 && errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "poll on this host's meeting socket");
        if (ready == 0 && left_ms == 0)
            return base_error(SHOAL_ERR_TIMEOUT, "no answer on this host's meeting socket");
    }
}

static enum shoal_status send_message(int fd, const struct msghdr *message, int64_t deadline_ns)
{
    while (sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == ETOOMANYREFS && base_left_ms(deadline_ns) > 0)
            base_sleep_ms(IN_FLIGHT_PAUSE_MS);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            TRY(wait_for(fd, POLLOUT, deadline_ns));
        else if (errno == EPIPE || errno == ECONNRESET)
            return base_error(SHOAL_ERR_PEER_LOST, "the other process ended");
        else if (errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                    "cannot send on this host's meeting socket");
    }
    return SHOAL_OK;
}

enum shoal_status host_message_send(int fd, const struct host_message *message,
                                    const int *descriptors, int count, int64_t deadline_ns)
{
    union control control;
    struct iovec part = {(void *)(uintptr_t)message, sizeof(*message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        memset(&control, 0, sizeof(control));
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(rights), descriptors, (size_t)count * sizeof(int));
    }
    return send_message(fd, &header, deadline_ns);
}

/* After a receive: an error if nothing more can come, else waits if nothing is there yet. A reset
 * is reported by the kernel once and before the messages that were sent earlier, so it is passed
 * over; the end of the stream follows it. */
static enum shoal_status check_received(int fd, ssize_t bytes, int64_t deadline_ns)
{
    if (bytes == 0)
        return base_error(SHOAL_ERR_PEER_LOST, "the other process ended");
    if (bytes > 0 || errno == EINTR || errno == ECONNRESET)
        return SHOAL_OK;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                "cannot receive on this host's meeting socket");
    return wait_for(fd, POLLIN, deadline_ns);
}

/* Takes the descriptors that came, and closes those for which there is no room. */
static int take_descriptors(struct msghdr *header, int *descriptors, int room)
{
    int taken = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(fd));
            if (taken < room)
                descriptors[taken++] = fd;
            else
                close(fd);
        }
    }
    return taken;
}

static enum shoal_status check_message(const struct msghdr *header, ssize_t bytes,
                                       enum host_message_kind kind,
                                       const struct host_message *message)
{
    if (header->msg_flags & MSG_CTRUNC)
        return base_error(SHOAL_ERR_SYSTEM,
                          "cannot take the descriptors of this host's other ranks: too many open "
                          "files (raise ulimit -n)");
    if (bytes != (ssize_t)sizeof(*message) || header->msg_flags & MSG_TRUNC)
        return base_error(SHOAL_ERR_FORMAT, "a message of the wrong length on this host's meeting "
                                            "socket");
    /* A verdict may come at any time instead of what was expected: the meeting failed. */
    if (message->kind != (int32_t)kind && message->kind != HOST_VERDICT)
        return base_error(SHOAL_ERR_FORMAT, "an unexpected message on this host's meeting socket");
    return SHOAL_OK;
}

enum shoal_status host_message_receive(int fd, enum host_message_kind kind,
                                       struct host_message *message, int *descriptors, int *count,
                                       int64_t deadline_ns)
{
    union control control;
    struct iovec part = {message, sizeof(*message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    int room = count != NULL ? *count : 0;
    ssize_t bytes;
    do {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        bytes = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        TRY(check_received(fd, bytes, deadline_ns));
    } while (bytes < 0);
    int taken = take_descriptors(&header, descriptors, room);
    enum shoal_status status = check_message(&header, bytes, kind, message);
    if (status != SHOAL_OK) {
        while (taken > 0)
            close(descriptors[--taken]);
        return status;
    }
    message->text[HOST_TEXT_BYTES - 1] = '\0';
    if (count != NULL)
        *count = taken;
    return SHOAL_OK;
}

enum shoal_status host_bytes_send(int fd, const void *data, size_t bytes, int64_t deadline_ns)
{
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    return send_message(fd, &header, deadline_ns);
}

enum shoal_status host_bytes_receive(int fd, void *data, size_t bytes, int64_t deadline_ns)
{
    ssize_t got;
    do {
        got = recv(fd, data, bytes, MSG_DONTWAIT | MSG_TRUNC);
        TRY(check_received(fd, got, deadline_ns));
    } while (got < 0);
    if (got != (ssize_t)bytes)
        return base_error(SHOAL_ERR_PEER_REFUSED, "the other end is no rank of shoal");
    return SHOAL_OK;
}

void host_peer_describe(int fd, char *text, size_t bytes)
{
    struct ucred peer;
    socklen_t peer_bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0)
        snprintf(text, bytes, "pid %d of user %u", (int)peer.pid, (unsigned)peer.uid);
    else
        snprintf(text, bytes, "a process");
}
