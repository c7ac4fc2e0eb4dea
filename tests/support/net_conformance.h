/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_conformance.h: the one suite that every transport runs. A transport's test gives a fixture
 * and calls net_conformance_run() from its main.
 */
#ifndef TESTS_SUPPORT_NET_CONFORMANCE_H
#define TESTS_SUPPORT_NET_CONFORMANCE_H

#include "support/net_node.h"

/* All parts that the fixture can run. Returns the number of failed tests, for main. */
int net_conformance_run(const struct net_fixture *fixture);

/* ---- for the suite's own parts and for a transport's further tests --------------------------- */

#define SUITE_LIMIT_MS 60000 /* nothing in here may take longer */

/* A world with opened nodes that know each other's addresses. */
struct suite {
    const struct net_fixture *fixture;
    void *world;
    int size;
    struct node *nodes;
    size_t memory_blocks;
    int descriptors;
};

void suite_open(struct suite *suite, const struct net_fixture *fixture, int size);
/* Moves time and polls every node that is open, once. */
void suite_poll(struct suite *suite);
/* Polls until done(user); fails the test when it takes too long. */
void suite_until(struct suite *suite, bool (*done)(void *user), void *user);
/* Polls until `count` frames in all have been received by node `rank`. */
void suite_until_received(struct suite *suite, int rank, uint64_t count);
/* Closes what is open, and fails the test on a node's fault or if anything leaked. */
void suite_close(struct suite *suite);

int net_conformance_run_threads(const struct net_fixture *fixture);
int net_conformance_run_processes(const struct net_fixture *fixture);

#endif
