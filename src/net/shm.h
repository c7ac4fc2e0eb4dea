/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h: what the shm transport stands on: one shared region per rank of the host, already mapped.
 *
 * Each rank owns one region (base/shared.h) and has mapped those of all local peers; boot/host.h
 * does that. In each region a part is given to this transport: one ring per possible local sender.
 * Sender i writes into ring i of the receiver's part: single producer, single consumer, no lock.
 * The part begins with the heads of all rings; their bytes follow, and take memory only when the
 * sender has its first frame.
 */
#ifndef SHOAL_NET_SHM_H
#define SHOAL_NET_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wait.h"
#include "net/transport.h"

/* Bytes of a region's part for `local_size` ranks with rings of ring_bytes (a power of two). */
size_t net_shm_part_bytes(int local_size, size_t ring_bytes);
/* Its first bytes, which must have memory from the start; all of it where the kernel can't populate
 * (base_shared_can_populate). */
size_t net_shm_head_bytes(int local_size);

struct net_shm_map {
    int local_rank, local_size;
    const int *world_ranks;         /* of each local rank; local_size entries, borrowed */
    void *const *parts;             /* each local rank's part, zeroes, 64-byte aligned; borrowed */
    size_t ring_bytes;              /* the same on all */
    struct base_bell *const *bells; /* each local rank's doorbell */
    const int *event_fds; /* each local rank's eventfd (EFD_NONBLOCK), usable here; borrowed */
};

/* Whoever watches the peers' processes tells that one ended. What it sent before is still
 * delivered; then poll() reports `left` if it said good-bye or left_in_order, else `lost`. On the
 * endpoint's thread. Calls no event itself. */
void net_shm_peer_gone(struct net_endpoint *endpoint, int peer, bool left_in_order);

#endif
