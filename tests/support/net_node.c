/* SPDX-License-Identifier: Apache-2.0 */
/* net_node.c: a rank that sends checkable frames and checks what it receives. */
#include "support/net_node.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node_frame {
    struct net_frame frame; /* first */
    struct node_frame *next;
    int peer;
    unsigned char payload[];
};

/* What a frame's header carries. */
struct label {
    int32_t from, to;
    uint64_t number;
};

static unsigned char byte_of(const struct label *label, uint64_t offset)
{
    uint64_t mixed = (offset + 1) * 0x9E3779B97F4A7C15u + label->number * 0xBF58476D1CE4E5B9u +
                     (uint64_t)label->from * 31 + (uint64_t)label->to * 17;

    return (unsigned char)(mixed >> 56);
}

static void fault(struct node *node, const char *what, int peer, uint64_t number)
{
    if (node->fault[0] == '\0')
        snprintf(node->fault, sizeof(node->fault), "rank %d: %s (peer %d, number %llu)", node->rank,
                 what, peer, (unsigned long long)number);
}

static void *on_arriving(void *user, int peer, const struct net_header *header)
{
    struct node *node = user;
    struct node_peer *from = &node->peers[peer];

    if (from->lost_count + from->left_count > 0)
        fault(node, "arriving after the end", peer, from->received_number);
    if (from->arriving != NULL)
        fault(node, "arriving twice", peer, from->received_number);
    if (node->refuse)
        return NULL;
    from->arriving = malloc(header->payload_bytes);
    return from->arriving;
}

static void check_frame(struct node *node, int peer, const struct net_header *header,
                        const unsigned char *payload)
{
    struct label label;

    memcpy(&label, header->body, sizeof(label));
    if (label.from != peer || label.to != node->rank)
        fault(node, "a frame for somebody else", peer, label.number);
    if (label.number != node->peers[peer].received_number)
        fault(node, "out of order, lost or doubled", peer, label.number);
    for (uint64_t i = 0; i < header->payload_bytes; i++) {
        if (payload[i] != byte_of(&label, i)) {
            fault(node, "wrong bytes", peer, label.number);
            return;
        }
    }
}

static void on_received(void *user, int peer, const struct net_header *header, void *payload)
{
    struct node *node = user;
    struct node_peer *from = &node->peers[peer];

    if (from->lost_count + from->left_count > 0)
        fault(node, "received after the end", peer, from->received_number);
    if (payload != from->arriving)
        fault(node, "received elsewhere than arriving() said", peer, from->received_number);
    check_frame(node, peer, header, payload);
    free(from->arriving);
    from->arriving = NULL;
    from->received_number++;
    node->received_total++;
    if (node->on_received != NULL)
        node->on_received(node, peer, header);
}

static void unlist(struct node *node, struct node_frame *frame)
{
    struct node_frame **link = &node->peers[frame->peer].under_way;

    while (*link != NULL && *link != frame)
        link = &(*link)->next;
    if (*link == NULL)
        fault(node, "an event for a frame that is not under way", frame->peer, 0);
    else
        *link = frame->next;
}

/* The frame is the node's again: spoil it, so that a transport that still reads it is caught. */
static void spoil(struct node_frame *frame)
{
    memset(frame->payload, 0xEE, frame->frame.header.payload_bytes);
    memset(&frame->frame, 0xEE, sizeof(frame->frame));
    free(frame);
}

static void on_sent(void *user, struct net_frame *frame)
{
    struct node *node = user;
    struct node_frame *sent = (struct node_frame *)frame;
    int peer = sent->peer;

    unlist(node, sent);
    spoil(sent);
    node->peers[peer].sent_count++;
    node->sent_total++;
    if (node->on_sent != NULL)
        node->on_sent(node, peer);
}

static void free_frames_to(struct node_peer *to)
{
    while (to->under_way != NULL) {
        struct node_frame *frame = to->under_way;

        to->under_way = frame->next;
        spoil(frame);
    }
    free(to->arriving);
    to->arriving = NULL;
}

static void on_lost(void *user, int peer, enum shoal_status why, const char *text)
{
    struct node *node = user;
    struct node_peer *to = &node->peers[peer];

    to->lost_count++;
    to->why = why;
    snprintf(to->text, sizeof(to->text), "%s", text);
    free_frames_to(to);
}

static void on_left(void *user, int peer)
{
    struct node *node = user;

    if (node->peers[peer].lost_count + node->peers[peer].left_count > 0)
        fault(node, "left after the end", peer, 0);
    node->peers[peer].left_count++;
}

enum shoal_status node_open(struct node *node, const struct net_fixture *fixture, void *world,
                            int rank, int size)
{
    struct net_endpoint_options options = {.rank = rank, .size = size, .connect_timeout_ms = 10000};
    struct net_events events = {.user = node,
                                .arriving = on_arriving,
                                .received = on_received,
                                .sent = on_sent,
                                .lost = on_lost,
                                .left = on_left};

    memset(node, 0, sizeof(*node));
    node->fixture = fixture;
    node->rank = rank;
    node->size = size;
    memset(options.job, 0x4A, sizeof(options.job));
    memset(options.secret, 0x5E, sizeof(options.secret));
    fixture->fill(world, rank, &options);
    node->address_bytes = sizeof(node->address);
    return fixture->transport->open(&options, &events, node->address, &node->address_bytes,
                                    &node->endpoint);
}

enum shoal_status node_meet(struct node *node, const unsigned char (*addresses)[NET_ADDRESS_BYTES],
                            const size_t *address_bytes)
{
    const unsigned char *pointers[NODE_PEERS_MAX];

    for (int i = 0; i < node->size; i++)
        pointers[i] = addresses[i];
    return node->fixture->transport->set_peers(node->endpoint, pointers, address_bytes);
}

struct net_frame *node_send(struct node *node, int peer, uint64_t payload_bytes)
{
    struct node_peer *to = &node->peers[peer];
    struct node_frame *frame = malloc(sizeof(*frame) + payload_bytes);
    struct label label = {.from = node->rank, .to = peer, .number = to->sent_number++};

    memset(frame, 0, sizeof(*frame));
    frame->peer = peer;
    frame->frame.header.payload_bytes = payload_bytes;
    frame->frame.payload = frame->payload;
    frame->frame.owner = frame;
    memcpy(frame->frame.header.body, &label, sizeof(label));
    for (uint64_t i = 0; i < payload_bytes; i++)
        frame->payload[i] = byte_of(&label, i);
    frame->next = to->under_way;
    to->under_way = frame;
    node->fixture->transport->send(node->endpoint, peer, &frame->frame);
    return &frame->frame;
}

void node_withdraw(struct node *node, int peer, struct net_frame *frame)
{
    node->fixture->transport->withdraw(node->endpoint, peer, frame);
    unlist(node, (struct node_frame *)frame);
    spoil((struct node_frame *)frame);
}

int node_poll(struct node *node)
{
    return node->fixture->transport->poll(node->endpoint);
}

bool node_sleep(struct node *node, int timeout_ms)
{
    const struct net_transport *transport = node->fixture->transport;
    struct pollfd wait = {.fd = transport->descriptor(node->endpoint), .events = POLLIN};
    int count;

    if (!transport->arm(node->endpoint))
        return false;
    count = poll(&wait, 1, timeout_ms);
    transport->disarm(node->endpoint);
    return count == 0;
}

void node_close(struct node *node, int64_t linger_ms)
{
    if (node->endpoint == NULL)
        return;
    node->fixture->transport->close(node->endpoint, linger_ms);
    node->endpoint = NULL;
    node_free_frames(node);
}

void node_free_frames(struct node *node)
{
    for (int i = 0; i < node->size; i++)
        free_frames_to(&node->peers[i]);
}
