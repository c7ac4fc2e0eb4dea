/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h: one operation as it was called: what every layer below api passes along, and the
 * signature by which ranks find out that they called different things.
 */
#ifndef SHOAL_COMM_CALL_H
#define SHOAL_COMM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"
#include "shoal.h"

struct comm_call {
    enum coll_kind kind;
    enum shoal_dtype dtype;
    enum shoal_op op;
    const void *in;
    void *out;
    uint64_t count;
    const uint64_t *counts, *displs, *recv_counts,
        *recv_displs; /* v forms; the request owns copies */
    int root;         /* root, or the peer of a send or receive */
    int tag;
    bool in_place;
    bool long_messages;     /* cut in few: coll_segment_count. The same on all ranks */
    bool steered;           /* its parts follow the rates of the links: steer.h */
    bool counted;           /* large, between hosts: links are measured meanwhile, also there */
    const uint32_t *shares; /* on a server: the ones that ranks have told, until the call has its */
    uint32_t version;       /* plan, and their version */
    bool has_factor;        /* PREMUL_SUM */
    unsigned char factor[16];
    struct shoal_recv_info *info; /* receive */
};

/* What must be the same on all ranks, in a form that can be compared and shown. count is that of
 * the call; for v forms a hash of all counts. */
struct comm_signature {
    uint8_t kind, dtype, op;
    int32_t root;
    uint64_t count;
};

struct comm_signature comm_signature_of(const struct comm_call *call, int size);
static inline bool comm_signature_equal(const struct comm_signature *a,
                                        const struct comm_signature *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count;
}
/* "allreduce(1024 × f32, sum)" into text; returns text. */
const char *comm_signature_text(const struct comm_signature *signature, char *text,
                                size_t text_bytes);

/* One 64-bit word of it for the same-host path: exact for counts under 2^40. Never 0. */
uint64_t comm_signature_pack(const struct comm_signature *signature);
struct comm_signature comm_signature_unpack(uint64_t packed);

/* Elements (of call->dtype) on this rank's input and output side; for checks and copies. */
uint64_t comm_call_in_count(const struct comm_call *call, int rank, int size);
uint64_t comm_call_out_count(const struct comm_call *call, int rank, int size);
/* Bytes of the larger of both sides: what counters count. */
uint64_t comm_call_bytes(const struct comm_call *call, int rank, int size);

#endif
