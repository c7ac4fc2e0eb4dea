/* SPDX-License-Identifier: Apache-2.0 */
/* late_sent.c: see late_sent.h. */
#include "support/late_sent.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define FLIGHTS_MAX 8192

/* A frame that its sender has not got back. */
struct flight {
    struct net_frame *frame;
    int peer;
    bool sent; /* by the inner transport */
    bool very_late;
};

struct late_endpoint {
    const struct net_transport *transport, *inner_transport;
    struct net_endpoint *inner;
    struct net_events events;
    uint64_t random;
    struct flight *flights; /* [FLIGHTS_MAX] in the order of the sends */
    int flight_count;
};

static struct late_endpoint *own(struct net_endpoint *endpoint)
{
    return (struct late_endpoint *)endpoint;
}

static uint64_t next_random(struct late_endpoint *late)
{
    late->random = late->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return late->random >> 32;
}

static void forget(struct late_endpoint *late, int at)
{
    late->flight_count--;
    memmove(&late->flights[at], &late->flights[at + 1],
            sizeof(struct flight) * (size_t)(late->flight_count - at));
}

static int find(const struct late_endpoint *late, const struct net_frame *frame)
{
    for (int i = 0; i < late->flight_count; i++)
        if (late->flights[i].frame == frame)
            return i;
    return -1;
}

/* ---- events of the inner transport ---- */

static void *on_arriving(void *user, int peer, const struct net_header *header)
{
    struct late_endpoint *late = user;
    return late->events.arriving(late->events.user, peer, header);
}

static void on_received(void *user, int peer, const struct net_header *header, void *payload)
{
    struct late_endpoint *late = user;
    late->events.received(late->events.user, peer, header, payload);
}

static void on_sent(void *user, struct net_frame *frame)
{
    struct late_endpoint *late = user;
    int at = find(late, frame);
    BASE_ASSERT(at >= 0 && !late->flights[at].sent);
    late->flights[at].sent = true;
    late->flights[at].very_late = next_random(late) % 8 == 0;
}

static void on_lost(void *user, int peer, enum shoal_status why, const char *text)
{
    struct late_endpoint *late = user;
    for (int i = late->flight_count - 1; i >= 0; i--)
        if (late->flights[i].peer == peer)
            forget(late, i);
    late->events.lost(late->events.user, peer, why, text);
}

static void on_left(void *user, int peer)
{
    struct late_endpoint *late = user;
    late->events.left(late->events.user, peer);
}

/* ---- the transport ---- */

static enum shoal_status open_endpoint(const struct net_endpoint_options *options,
                                       const struct net_events *events, unsigned char *address,
                                       size_t *address_bytes, struct net_endpoint **out)
{
    const struct late_sent_context *context = options->context;
    struct late_endpoint *late;
    struct net_endpoint_options inner = *options;
    inner.context = context->context;
    TRY(BASE_NEW(&late, "a late endpoint"));
    late->transport = &late_sent;
    late->inner_transport = context->inner;
    late->events = *events;
    late->random = context->seed;
    struct net_events passed = {.user = late,
                                .arriving = on_arriving,
                                .received = on_received,
                                .sent = on_sent,
                                .lost = on_lost,
                                .left = on_left};
    enum shoal_status status = BASE_NEW_ARRAY(&late->flights, FLIGHTS_MAX, "frames under way");
    if (status == SHOAL_OK)
        status = late->inner_transport->open(&inner, &passed, address, address_bytes, &late->inner);
    if (status != SHOAL_OK) {
        base_free(late->flights);
        base_free(late);
        return status;
    }
    *out = (struct net_endpoint *)late;
    return SHOAL_OK;
}

static enum shoal_status set_peers(struct net_endpoint *endpoint,
                                   const unsigned char *const *addresses,
                                   const size_t *address_bytes)
{
    struct late_endpoint *late = own(endpoint);
    return late->inner_transport->set_peers(late->inner, addresses, address_bytes);
}

static void send_frame(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct late_endpoint *late = own(endpoint);
    BASE_ASSERT(late->flight_count < FLIGHTS_MAX && find(late, frame) < 0);
    late->flights[late->flight_count++] = (struct flight){frame, peer, false, false};
    late->inner_transport->send(late->inner, peer, frame);
}

static void withdraw(struct net_endpoint *endpoint, int peer, struct net_frame *frame)
{
    struct late_endpoint *late = own(endpoint);
    int at = find(late, frame);
    BASE_ASSERT(at >= 0 && late->flights[at].peer == peer); /* only what is under way */
    bool sent = late->flights[at].sent;
    forget(late, at);
    if (!sent)
        late->inner_transport->withdraw(late->inner, peer, frame);
}

static void divert(struct net_endpoint *endpoint, int peer)
{
    own(endpoint)->inner_transport->divert(own(endpoint)->inner, peer);
}

/* Gives some of the frames back that the inner transport has done with. */
static int poll_endpoint(struct net_endpoint *endpoint)
{
    struct late_endpoint *late = own(endpoint);
    int events = late->inner_transport->poll(late->inner);
    for (int i = 0; i < late->flight_count;) {
        if (!late->flights[i].sent || next_random(late) % (late->flights[i].very_late ? 16 : 2)) {
            events += late->flights[i].sent; /* not quiet yet */
            i++;
            continue;
        }
        struct net_frame *frame = late->flights[i].frame;
        forget(late, i);
        events++;
        late->events.sent(late->events.user, frame);
        i = 0; /* the list may be another now */
    }
    return events;
}

static int descriptor(struct net_endpoint *endpoint)
{
    return own(endpoint)->inner_transport->descriptor(own(endpoint)->inner);
}

static bool arm(struct net_endpoint *endpoint)
{
    return own(endpoint)->inner_transport->arm(own(endpoint)->inner);
}

static void disarm(struct net_endpoint *endpoint)
{
    own(endpoint)->inner_transport->disarm(own(endpoint)->inner);
}

static void wake(struct net_endpoint *endpoint)
{
    own(endpoint)->inner_transport->wake(own(endpoint)->inner);
}

static void close_endpoint(struct net_endpoint *endpoint, int64_t linger_ms)
{
    struct late_endpoint *late = own(endpoint);
    late->inner_transport->close(late->inner, linger_ms);
    base_free(late->flights);
    base_free(late);
}

const struct net_transport late_sent = {
    .name = "late_sent",
    .open = open_endpoint,
    .set_peers = set_peers,
    .send = send_frame,
    .withdraw = withdraw,
    .divert = divert,
    .poll = poll_endpoint,
    .descriptor = descriptor,
    .arm = arm,
    .disarm = disarm,
    .wake = wake,
    .flow = net_no_flow,
    .close = close_endpoint,
};
