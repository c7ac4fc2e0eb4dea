/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: signatures and sizes of calls. Pure. */
#include "comm/call.h"

#include <inttypes.h>
#include <stdio.h>

#include "kernel/kernel.h"

/* FNV-1a over words: v forms are compared by the hash of all their counts. */
static uint64_t hash_counts(const uint64_t *counts, int size)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int i = 0; i < size; i++)
        hash = (hash ^ counts[i]) * UINT64_C(1099511628211);
    return hash >> 25; /* 39 bits */
}

/* Marks a signature's count as the hash of a v form's counts; fits the packed form's 40 bits, and
 * no count of elements is as large. */
#define COUNTS_MARK (UINT64_C(1) << 39)

struct comm_signature comm_signature_of(const struct comm_call *call, int size)
{
    struct comm_signature signature = {.kind = (uint8_t)call->kind,
                                       .dtype = (uint8_t)call->dtype,
                                       .op = (uint8_t)call->op,
                                       .root = call->root,
                                       .count = call->count};
    /* Those of alltoallv differ by rank; each pair compares its own instead. */
    if (call->kind == COLL_ALLTOALL && call->counts)
        signature.count = COUNTS_MARK;
    else if (call->counts)
        signature.count = COUNTS_MARK | hash_counts(call->counts, size);
    return signature;
}

/* "1024", or of a v form "counts ~8c3f01", which tells different ones apart. */
static const char *count_text(uint64_t count, char text[32])
{
    if (count & COUNTS_MARK)
        snprintf(text, 32, "counts ~%06" PRIx64, count & 0xffffff);
    else
        snprintf(text, 32, "%" PRIu64, count);
    return text;
}

const char *comm_signature_text(const struct comm_signature *signature, char *text,
                                size_t text_bytes)
{
    char root[32] = "", count[32];
    if (signature->kind == COLL_REDUCE || signature->kind == COLL_BROADCAST ||
        signature->kind == COLL_GATHER || signature->kind == COLL_SCATTER)
        snprintf(root, sizeof(root), ", root %d", signature->root);
    bool reduces = signature->kind == COLL_ALLREDUCE || signature->kind == COLL_REDUCE ||
                   signature->kind == COLL_REDUCE_SCATTER;
    if (signature->kind == COLL_BARRIER)
        snprintf(text, text_bytes, "barrier");
    else
        snprintf(text, text_bytes, "%s(%s x %s%s%s%s)", comm_kind_name(signature->kind),
                 count_text(signature->count, count), kernel_dtype_name(signature->dtype),
                 reduces ? ", " : "", reduces ? kernel_op_name(signature->op) : "", root);
    return text;
}

/* Bits: 0-3 kind + 1, 4-7 dtype, 8-11 op, 12-23 root + 1, 24-63 count. */
#define PACKED_COUNT_BITS 40

uint64_t comm_signature_pack(const struct comm_signature *signature)
{
    uint64_t limit = (UINT64_C(1) << PACKED_COUNT_BITS) - 1;
    uint64_t count = signature->count < limit ? signature->count : limit;
    return (uint64_t)(signature->kind + 1) | (uint64_t)signature->dtype << 4 |
           (uint64_t)signature->op << 8 | ((uint64_t)(signature->root + 1) & 0xfff) << 12 |
           count << 24;
}

struct comm_signature comm_signature_unpack(uint64_t packed)
{
    struct comm_signature signature = {.kind = (uint8_t)((packed & 15) - 1),
                                       .dtype = (uint8_t)(packed >> 4 & 15),
                                       .op = (uint8_t)(packed >> 8 & 15),
                                       .root = (int32_t)(packed >> 12 & 0xfff) - 1,
                                       .count = packed >> 24};
    return signature;
}

static uint64_t sum_counts(const uint64_t *counts, uint64_t count, int size)
{
    if (!counts)
        return count * (uint64_t)size;
    uint64_t sum = 0;
    for (int i = 0; i < size; i++)
        sum += counts[i];
    return sum;
}

static uint64_t own_count(const struct comm_call *call, int rank)
{
    return call->counts ? call->counts[rank] : call->count;
}

uint64_t comm_call_in_count(const struct comm_call *call, int rank, int size)
{
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
    case COLL_BROADCAST:
    case COLL_SEND: return call->count;
    case COLL_ALLGATHER:
    case COLL_GATHER: return own_count(call, rank);
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: return sum_counts(call->counts, call->count, size);
    case COLL_SCATTER: return rank == call->root ? sum_counts(call->counts, call->count, size) : 0;
    default: return 0;
    }
}

uint64_t comm_call_out_count(const struct comm_call *call, int rank, int size)
{
    switch (call->kind) {
    case COLL_ALLREDUCE:
    case COLL_BROADCAST:
    case COLL_RECV: return call->count;
    case COLL_REDUCE: return rank == call->root ? call->count : 0;
    case COLL_ALLGATHER: return sum_counts(call->counts, call->count, size);
    case COLL_GATHER: return rank == call->root ? sum_counts(call->counts, call->count, size) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER: return own_count(call, rank);
    case COLL_ALLTOALL: return sum_counts(call->recv_counts, call->count, size);
    default: return 0;
    }
}

uint64_t comm_call_bytes(const struct comm_call *call, int rank, int size)
{
    uint64_t in = comm_call_in_count(call, rank, size);
    uint64_t out = comm_call_out_count(call, rank, size);
    return (in > out ? in : out) * kernel_dtype_bytes(call->dtype);
}
