/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.c: ranks as threads. The hall holds a ring for every ordered pair, and for each rank a
 * doorbell, an eventfd and the flag that says it was killed. All the rest is ring_endpoint.c, the
 * same code that runs between processes.
 */
#include "net/inproc.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "net/ring_endpoint.h"

/* One rank's seat; on lines of its own, because others look at it while they poll. */
struct seat {
    _Alignas(NET_RING_LINE_BYTES) struct base_bell bell;
    atomic_int killed;
    int event_fd;
};

struct net_inproc_hall {
    int size;
    size_t ring_bytes;
    struct seat *seats;
    unsigned char *rings; /* [to][from] */
};

/* A ring's bytes lie behind it. */
static size_t memory_bytes(size_t ring_bytes)
{
    return sizeof(struct net_ring) + ring_bytes;
}

static struct net_ring *ring_of(const struct net_inproc_hall *hall, int to, int from)
{
    size_t index = (size_t)to * (size_t)hall->size + (size_t)from;

    return (struct net_ring *)(hall->rings + index * memory_bytes(hall->ring_bytes));
}

static unsigned char *data_of(const struct net_inproc_hall *hall, int to, int from)
{
    return (unsigned char *)(ring_of(hall, to, from) + 1);
}

static enum shoal_status take_seats(struct net_inproc_hall *hall)
{
    for (int i = 0; i < hall->size; i++)
        hall->seats[i].event_fd = -1;
    for (int i = 0; i < hall->size; i++) {
        hall->seats[i].event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (hall->seats[i].event_fd < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make an event descriptor");
    }
    return SHOAL_OK;
}

enum shoal_status net_inproc_hall_create(int size, size_t ring_bytes, struct net_inproc_hall **out)
{
    struct net_inproc_hall *hall;
    size_t count = (size_t)size * (size_t)size;
    enum shoal_status status;

    if (size < 1 || !net_ring_bytes_valid(ring_bytes))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "a hall needs at least one rank and rings of a power of two of bytes, "
                          "%d or more; got %d ranks, %zu bytes",
                          NET_RING_MIN_BYTES, size, ring_bytes);
    TRY(BASE_NEW(&hall, "an inproc hall"));
    hall->size = size;
    hall->ring_bytes = ring_bytes;
    status = BASE_NEW_ARRAY(&hall->seats, size, "an inproc hall's seats");
    if (status == SHOAL_OK)
        status = take_seats(hall);
    if (status == SHOAL_OK)
        status = base_alloc(count * memory_bytes(ring_bytes), "an inproc hall's rings",
                            (void **)&hall->rings);
    if (status != SHOAL_OK) {
        net_inproc_hall_free(hall);
        return status;
    }
    *out = hall;
    return SHOAL_OK;
}

void net_inproc_hall_free(struct net_inproc_hall *hall)
{
    if (hall == NULL)
        return;
    for (int i = 0; hall->seats != NULL && i < hall->size; i++) {
        if (hall->seats[i].event_fd >= 0)
            close(hall->seats[i].event_fd);
    }
    base_free(hall->rings);
    base_free(hall->seats);
    base_free(hall);
}

void net_inproc_kill(struct net_inproc_hall *hall, int rank)
{
    BASE_ASSERT(rank >= 0 && rank < hall->size);
    atomic_store(&hall->seats[rank].killed, 1);
    for (int i = 0; i < hall->size; i++) {
        if (base_bell_ring(&hall->seats[i].bell))
            (void)eventfd_write(hall->seats[i].event_fd, 1);
    }
}

static int gather_peers(struct net_inproc_hall *hall, int rank, struct net_ring_peer *peers)
{
    int count = 0;

    for (int i = 0; i < hall->size; i++) {
        if (i != rank)
            peers[count++] = (struct net_ring_peer){.peer = i,
                                                    .outward = ring_of(hall, i, rank),
                                                    .inward = ring_of(hall, rank, i),
                                                    .outward_data = data_of(hall, i, rank),
                                                    .inward_data = data_of(hall, rank, i),
                                                    .dead = &hall->seats[i].killed,
                                                    .bell = &hall->seats[i].bell,
                                                    .event_fd = hall->seats[i].event_fd};
    }
    return count;
}

static enum shoal_status open_endpoint(const struct net_endpoint_options *options,
                                       const struct net_events *events, unsigned char *address,
                                       size_t *address_bytes, struct net_endpoint **out)
{
    struct net_inproc_hall *hall = options->context;
    struct net_ring_peer *peers;
    enum shoal_status status;

    if (hall == NULL || options->size != hall->size || options->rank < 0 ||
        options->rank >= options->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d of %d does not fit the hall", options->rank,
                          options->size);
    TRY(BASE_NEW_ARRAY(&peers, hall->size, "an inproc endpoint's peers"));
    struct net_ring_endpoint_options ring_options = {
        .transport = &net_inproc,
        .endpoint = options,
        .events = events,
        .peers = peers,
        .peer_count = gather_peers(hall, options->rank, peers),
        .ring_bytes = hall->ring_bytes,
        .own_dead = &hall->seats[options->rank].killed,
        .bell = &hall->seats[options->rank].bell,
        .event_fd = hall->seats[options->rank].event_fd,
    };
    status = net_ring_endpoint_open(&ring_options, address, address_bytes, out);
    base_free(peers);
    return status;
}

const struct net_transport net_inproc = {
    .name = "inproc",
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
