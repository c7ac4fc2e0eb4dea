/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_node.h: a rank for transport tests. It sends frames whose bytes follow from sender, receiver
 * and number, checks everything that comes against that, and keeps count of all events.
 *
 * A violation (wrong order, wrong bytes, an event after the end) is written into `fault`, so that
 * nodes work in threads and in forked processes too, where a test's assertions can't be used.
 */
#ifndef TESTS_SUPPORT_NET_NODE_H
#define TESTS_SUPPORT_NET_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"

#define NODE_PEERS_MAX 32

/* What a transport's test gives to the suite. */
struct net_fixture {
    const struct net_transport *transport;
    bool threads;   /* endpoints may run in threads of their own */
    bool processes; /* and in processes forked after create() */
    bool allocates; /* may allocate while frames flow */
    void *(*create)(int size);
    void (*destroy)(void *world);
    void (*fill)(void *world, int rank, struct net_endpoint_options *options);
    void (*step)(void *world);                             /* moves time; may be NULL */
    void (*kill)(void *world, int rank);                   /* as SIGKILL; may be NULL */
    void (*died)(struct net_endpoint *endpoint, int peer); /* a process ended; may be NULL */
};

struct node_frame; /* a frame under way */

struct node_peer {
    uint64_t sent_number, received_number; /* frames sent to, received from */
    uint64_t sent_count;                   /* `sent` events */
    int lost_count, left_count;
    enum shoal_status why;
    char text[512];
    struct node_frame *under_way; /* list */
    unsigned char *arriving;      /* of the frame that is coming */
};

struct node {
    const struct net_fixture *fixture;
    struct net_endpoint *endpoint;
    int rank, size;
    unsigned char address[NET_ADDRESS_BYTES];
    size_t address_bytes;
    struct node_peer peers[NODE_PEERS_MAX];
    uint64_t received_total, sent_total;
    /* what to do beyond counting; set by tests */
    void *user;
    void (*on_received)(struct node *node, int peer, const struct net_header *header);
    void (*on_sent)(struct node *node, int peer);
    bool refuse; /* arriving() throws payloads away */
    char fault[256];
};

/* Opens the node's endpoint. */
enum shoal_status node_open(struct node *node, const struct net_fixture *fixture, void *world,
                            int rank, int size);
/* Gives each of the nodes all addresses. */
enum shoal_status node_meet(struct node *node, const unsigned char (*addresses)[NET_ADDRESS_BYTES],
                            const size_t *address_bytes);
/* Sends the next frame to peer. The frame may be forgotten; it is freed when it is the node's
 * again. */
struct net_frame *node_send(struct node *node, int peer, uint64_t payload_bytes);
/* Takes a frame back and spoils its bytes. The receiver gets it only if `expect` says so. */
void node_withdraw(struct node *node, int peer, struct net_frame *frame);
int node_poll(struct node *node);
/* arm, poll(2) at most timeout_ms, disarm. True if it slept until the timeout. */
bool node_sleep(struct node *node, int timeout_ms);
void node_close(struct node *node, int64_t linger_ms);
/* Frees frames that are still listed; for killed nodes, whose endpoint does nothing any more. */
void node_free_frames(struct node *node);

#endif
