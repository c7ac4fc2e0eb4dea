/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c: ranks of one host through rings in memory that they share. The rings and doorbells lie
 * where net_shm_map says; who mapped them also watches the peers' processes and tells of their end
 * (net_shm_peer_gone), because shared memory itself does not notice it.
 */
#include "net/shm.h"

#include "base/memory.h"
#include "base/status.h"
#include "net/ring_endpoint.h"

#define PAGE_BYTES 4096

size_t net_shm_head_bytes(int local_size)
{
    size_t bytes = (size_t)local_size * sizeof(struct net_ring);

    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

size_t net_shm_part_bytes(int local_size, size_t ring_bytes)
{
    return net_shm_head_bytes(local_size) + (size_t)local_size * ring_bytes;
}

static struct net_ring *ring_of(const struct net_shm_map *map, int to, int from)
{
    return (struct net_ring *)map->parts[to] + from;
}

static unsigned char *data_of(const struct net_shm_map *map, int to, int from)
{
    unsigned char *part = map->parts[to];

    return part + net_shm_head_bytes(map->local_size) + (size_t)from * map->ring_bytes;
}

static enum shoal_status check_map(const struct net_shm_map *map,
                                   const struct net_endpoint_options *options)
{
    if (map == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "the shm transport needs a map");
    if (!net_ring_bytes_valid(map->ring_bytes))
        return base_error(SHOAL_ERR_OPTION,
                          "rings of %zu bytes: must be a power of two of at least %d",
                          map->ring_bytes, NET_RING_MIN_BYTES);
    if (map->local_rank < 0 || map->local_rank >= map->local_size ||
        map->world_ranks[map->local_rank] != options->rank)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d is not local rank %d of %d in its map",
                          options->rank, map->local_rank, map->local_size);
    for (int i = 0; i < map->local_size; i++) {
        if (map->world_ranks[i] < 0 || map->world_ranks[i] >= options->size)
            return base_error(SHOAL_ERR_ARGUMENT, "local rank %d is world rank %d of %d", i,
                              map->world_ranks[i], options->size);
    }
    return SHOAL_OK;
}

static int gather_peers(const struct net_shm_map *map, struct net_ring_peer *peers)
{
    int count = 0;

    for (int i = 0; i < map->local_size; i++) {
        if (i != map->local_rank)
            peers[count++] =
                (struct net_ring_peer){.peer = map->world_ranks[i],
                                       .outward = ring_of(map, i, map->local_rank),
                                       .inward = ring_of(map, map->local_rank, i),
                                       .outward_data = data_of(map, i, map->local_rank),
                                       .inward_data = data_of(map, map->local_rank, i),
                                       .bell = map->bells[i],
                                       .event_fd = map->event_fds[i]};
    }
    return count;
}

static enum shoal_status open_endpoint(const struct net_endpoint_options *options,
                                       const struct net_events *events, unsigned char *address,
                                       size_t *address_bytes, struct net_endpoint **out)
{
    const struct net_shm_map *map = options->context;
    struct net_ring_peer *peers;
    enum shoal_status status;

    TRY(check_map(map, options));
    TRY(BASE_NEW_ARRAY(&peers, map->local_size, "a shm endpoint's peers"));
    struct net_ring_endpoint_options ring_options = {
        .transport = &net_shm,
        .endpoint = options,
        .events = events,
        .peers = peers,
        .peer_count = gather_peers(map, peers),
        .ring_bytes = map->ring_bytes,
        .takes_rings = true,
        .bell = map->bells[map->local_rank],
        .event_fd = map->event_fds[map->local_rank],
    };
    status = net_ring_endpoint_open(&ring_options, address, address_bytes, out);
    base_free(peers);
    return status;
}

void net_shm_peer_gone(struct net_endpoint *endpoint, int peer, bool left_in_order)
{
    net_ring_endpoint_peer_gone(endpoint, peer, left_in_order);
}

const struct net_transport net_shm = {
    .name = "shm",
    .open = open_endpoint,
    .set_peers = net_ring_endpoint_set_peers,
    .send = net_ring_endpoint_send,
    .withdraw = net_ring_endpoint_withdraw,
    .divert = net_ring_endpoint_divert,
    .poll = net_ring_endpoint_poll,
    .descriptor = net_ring_endpoint_descriptor,
    .arm = net_ring_endpoint_arm,
    .disarm = net_ring_endpoint_disarm,
    .wake = net_ring_endpoint_wake,
    .flow = net_no_flow,
    .use_streams = net_no_streams,
    .close = net_ring_endpoint_close,
};
