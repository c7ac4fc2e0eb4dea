/* SPDX-License-Identifier: Apache-2.0 */
/* events.h: what is to happen in a simulation, the first thing first; also the queue of a link. */
#ifndef SHOAL_SIM_EVENTS_H
#define SHOAL_SIM_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

struct event {
    double at_ns;   /* in a link's queue: the tag, in bytes */
    double tail_ns; /* when the last byte left the link before */
    uint64_t order; /* of those with equal at_ns */
    uint32_t step;
    uint16_t rank; /* of the step; of messages the sender */
    uint8_t kind, hop, slot;
};

struct events {
    struct event *entries;
    size_t count, capacity;
};

enum shoal_status events_push(struct events *events, struct event event);
/* The first one in the order of at_ns and then order; there is one. */
struct event events_pop(struct events *events);

#endif
