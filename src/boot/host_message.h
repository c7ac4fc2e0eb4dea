/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_message.h: what the ranks of one host say to each other when they meet (host.c), over Unix
 * sockets that keep message borders. After the three messages of net/proof.h:
 *
 *   member -> lowest   MEMBER   status of its own preparation; with it its region and eventfd
 *   lowest -> member   SET      descriptors of ranks first … first+count-1, two for each
 *   member -> lowest   MAPPED   status: all mapped; with it the end of its lifeline
 *   lowest -> member   LIVES    the ends of ranks first … first+count-1, one for each
 *   member -> lowest   READY    status: it has them
 *   lowest -> member   VERDICT  status: the meeting's, with its text, the same for all
 */
#ifndef SHOAL_BOOT_HOST_MESSAGE_H
#define SHOAL_BOOT_HOST_MESSAGE_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "boot/host.h"
#include "shoal.h"

#define HOST_DESCRIPTORS_MAX 252 /* of one message; the kernel takes 253 */
#define HOST_TEXT_BYTES      768

enum host_message_kind {
    HOST_MEMBER = 1,
    HOST_SET,
    HOST_MAPPED,
    HOST_LIVES,
    HOST_READY,
    HOST_VERDICT
};

struct host_message {
    int32_t kind, status;
    int32_t first, count; /* SET, LIVES: ranks */
    char text[HOST_TEXT_BYTES];
};

/* Fills in kind, status and, unless OK, the thread's error text. */
void host_message_make(struct host_message *message, enum host_message_kind kind,
                       enum shoal_status status);
/* Sends one message with `count` descriptors; waits for room until the deadline. */
enum shoal_status host_message_send(int fd, const struct host_message *message,
                                    const int *descriptors, int count, int64_t deadline_ns);
/* Receives one message of a kind, waiting until the deadline. *count: room in, number out;
 * descriptors are the caller's. SHOAL_ERR_PEER_LOST, TIMEOUT, FORMAT. */
enum shoal_status host_message_receive(int fd, enum host_message_kind kind,
                                       struct host_message *message, int *descriptors, int *count,
                                       int64_t deadline_ns);
/* Raw bytes as one message, for the proofs: all or an error. */
enum shoal_status host_bytes_send(int fd, const void *data, size_t bytes, int64_t deadline_ns);
enum shoal_status host_bytes_receive(int fd, void *data, size_t bytes, int64_t deadline_ns);
/* "pid 12 of user 1000" of the other end. */
void host_peer_describe(int fd, char *text, size_t bytes);

/* Makes this rank's lifeline; *end is the one for its peers, the caller's. */
enum shoal_status host_life_make(struct boot_host *host, int *end);
/* All are mapped: nobody needs the descriptors of the peers' regions any more. */
void host_regions_mapped(struct boot_host *host);

/* The two ends of a meeting; *host has its own region and eventfd if prepared is OK, and gets those
 * of the others and the lifelines. */
enum shoal_status host_meet_as_lowest(const struct boot_host_options *options,
                                      enum shoal_status prepared, struct boot_host *host);
enum shoal_status host_meet_as_member(const struct boot_host_options *options,
                                      enum shoal_status prepared, struct boot_host *host);

/* The socket's name in the abstract namespace; returns its length for bind and connect. */
struct sockaddr_un;
socklen_t host_socket_name(const struct boot_host_options *options, struct sockaddr_un *out);

#endif
