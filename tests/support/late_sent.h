/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_sent.h: a transport around another one that reports `sent` some polls later, after frames
 * that answer it have come: as transports may that send from the frame's own memory.
 */
#ifndef SHOAL_TESTS_LATE_SENT_H
#define SHOAL_TESTS_LATE_SENT_H

#include "net/transport.h"

/* The endpoint options' context. */
struct late_sent_context {
    const struct net_transport *inner;
    void *context; /* inner's */
    uint64_t seed;
};

extern const struct net_transport late_sent;

#endif
