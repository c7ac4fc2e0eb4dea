/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h: what the files of the room share.
 *
 * A step begins with the first tensor that is added (or a flush, or finish) and ends in
 * fuse_finish. In a step a tensor is: missing -> claimed (its gradient is being copied) -> added; a
 * buffer: filling -> ready (all its tensors are added, and it is packed) -> sent -> reduced (and
 * unpacked). One of 8 bits is summed after it was sent: this rank's shard of it, which then is
 * gathered.
 *
 * Invariants
 *  1. What changes below `lock` is touched under it, but for requests, which belong to the thread
 *     that submits, and at the end of the step to the one that finishes. It is held for a few
 *     instructions, never while a call is submitted: callbacks, which run in the engine, take it.
 *  2. Buffers are submitted in the order of `words`, which is the same on every rank, by one thread
 *     at a time: the one that has set `moving`.
 *  3. words[0 … named) are known here, words[0 … sent) are submitted. Rank 0 knows the next word
 *     when it chooses it; the others when its broadcast ends.
 *  4. A callback touches the fuse only before its request counts as done for its group, so closing
 *     the groups waits for them.
 */
#ifndef SHOAL_FUSE_STATE_H
#define SHOAL_FUSE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/wait.h"
#include "fuse/fuse.h"
#include "fuse/layout.h"
#include "fuse/meter.h"

struct fuse_tensor {
    uint64_t count;
    const char *name; /* NULL: none */
    bool claimed;     /* in this step, as the next one */
    void *out;        /* where the result is still to be copied; NULL: nowhere */
};

enum fuse_state { FUSE_FILLING, FUSE_READY, FUSE_SENT, FUSE_SUMMED, FUSE_REDUCED };

struct fuse_buffer {
    enum fuse_state state;
    atomic_bool is_reduced; /* state, for those who wait without the lock */
    bool named;             /* it stands in words */
    int missing;            /* tensors that are not added yet */
    uint64_t ready_as;      /* the how-manieth it was ready */
    struct shoal_fuse_times times;
};

/* Buffers of 8 bits: of each buffer one area, which has a shard for each rank. */
struct fuse_blocks {
    uint64_t shard_blocks;                  /* of the largest buffer */
    struct kernel_block *packed, *received; /* [buffers][ranks][shard_blocks] */
    float *residual; /* [buffers][shard_blocks] blocks: what rounding of this rank's sums has lost;
                      * NULL: nothing is kept */
};

/* Buffers that lie side by side. */
struct fuse_stretch {
    int first, count;
};

/* Which buffers are sent together at this place of the order, and how. */
struct fuse_word {
    struct fuse *fuse;
    uint32_t said; /* as it is broadcast: the first buffer, how many more, and FUSE_WORD_LONG */
    bool is_said;  /* by this rank */
    struct fuse_stretch stretch;
    bool long_messages;
    shoal_request_t request;                      /* of its broadcast */
    shoal_request_t send_request, gather_request; /* of its buffers; the second with int8 only */
};

#define FUSE_WORD_MORE_AT 24
#define FUSE_WORD_BUFFER  ((UINT32_C(1) << FUSE_WORD_MORE_AT) - 1)
#define FUSE_WORD_LONG    (UINT32_C(1) << 31)
#define FUSE_JOIN_MAX     64
_Static_assert(FUSE_BUFFERS_MAX <= FUSE_WORD_BUFFER, "a word has room for a buffer's number");
_Static_assert(FUSE_JOIN_MAX <= FUSE_WORD_LONG >> FUSE_WORD_MORE_AT, "and for how many there are");

/* Somebody who waits for results: of a tensor, or of all. */
struct fuse_await {
    struct fuse_await *next;
    const struct fuse *fuse;
    int tensor;          /* or FUSE_ALL_TENSORS */
    int64_t deadline_ns; /* for what this rank has not added itself */
};
#define FUSE_ALL_TENSORS (-1)

struct fuse {
    struct fuse_place place;
    struct comm_group *data;       /* of the buffers */
    struct comm_group *word_group; /* of the words which of them is next */
    struct comm_group *gathers;    /* of sums of 8 bits, in the order of words; NULL: none */
    char name[48];
    char *names; /* of the tensors, one behind the other */
    enum shoal_dtype dtype;
    enum shoal_op op;
    enum shoal_compression compression;
    size_t elem_bytes;
    int tensor_count, buffer_count, in_flight_max;
    int join_max; /* buffers that may go together */
    uint64_t buffer_bytes, arena_bytes;
    bool shared;                 /* the arena lies in memory that ranks share */
    unsigned char *arena;        /* [arena_bytes] */
    unsigned char *spare;        /* [arena_bytes] until the order is learnt, then NULL */
    unsigned char *residual;     /* [arena_bytes] what rounding has lost of each element on this
                                  * rank; NULL: nothing is kept */
    struct fuse_blocks blocks;   /* with int8 */
    uint32_t *order;             /* [tensor_count] as tensors lie in the arena */
    struct fuse_home *homes;     /* [tensor_count] */
    struct fuse_window *windows; /* [buffer_count] */
    atomic_int added_count;      /* tensors in this step */
    atomic_int reduced_count;    /* buffers in this step */
    struct base_bell bell;       /* for who waits in a step */

    pthread_mutex_t lock;
    struct fuse_tensor *tensors; /* [tensor_count] */
    struct fuse_buffer *buffers; /* [buffer_count] */
    struct fuse_word *words;     /* [buffer_count] */
    struct fuse_await *awaits;   /* who waits now */
    bool under_way;              /* a step is */
    uint64_t step;               /* its number, from 1; or the last one's */
    uint32_t *seen;              /* [tensor_count] order in which tensors were claimed; NULL:
                                  * nothing is to be learnt any more */
    uint32_t *agreed;            /* [tensor_count] rank 0's, likewise */
    int claimed_count;
    uint64_t ready_count; /* buffers that were ready so far, in all steps */
    int named, sent;      /* of words */
    int named_buffers;    /* by them, and how many of these are submitted */
    int sent_buffers;
    int gathered;         /* of those that are sent */
    int ready_now;        /* buffers that are ready and not sent */
    bool listening;       /* the next word is on its way here */
    bool moving;          /* a thread submits */
    uint64_t paced_bytes; /* of counted.wire_bytes: when the last step ended */
    bool fast;            /* rank 0: the last step was, so that messages are long in this one */
    struct fuse_meter meter;
    struct shoal_fuse_counters counted; /* but for the times */
};

static inline void *fuse_home_of(const struct fuse *fuse, int tensor)
{
    return fuse->arena + fuse->homes[tensor].offset;
}

/* fuse.c */
/* "tensor 3 'fc.weight'"; returns text. */
#define FUSE_TENSOR_TEXT_BYTES 96
const char *fuse_tensor_text(const struct fuse *fuse, int tensor,
                             char text[FUSE_TENSOR_TEXT_BYTES]);
/* Breaks the fuse on every rank, and wakes who waits here. Returns as fuse_health. */
enum shoal_status fuse_fail(struct fuse *fuse, enum shoal_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* SHOAL_OK, or why the fuse is broken; also if its parent is. */
enum shoal_status fuse_health(struct fuse *fuse);

/* step.c: nothing has happened to them in this step. Lock held, or nobody has the fuse yet. */
void fuse_clear_buffers(struct fuse *fuse);
/* Whether one of those who wait need not any more. Lock held. */
bool fuse_someone_is_back(const struct fuse *fuse);

/* compress.c: a buffer that is whole becomes what travels, in its own memory, and that becomes
 * gradients again. For fuses that compress; the buffer is the caller's. */
void fuse_pack(struct fuse *fuse, int buffer);
void fuse_unpack(struct fuse *fuse, int buffer);
/* How many bytes such a buffer has as it travels. */
uint64_t fuse_wire_bytes(const struct fuse *fuse, int buffer);
/* The call that sends them. Those that compress go alone. */
struct comm_call fuse_send_call(const struct fuse *fuse, struct fuse_stretch stretch);

/* blocks.c: for int8. */
static inline bool fuse_has_blocks(const struct fuse *fuse)
{
    return fuse->compression == SHOAL_COMPRESSION_INT8;
}
enum shoal_status fuse_take_blocks(struct fuse *fuse, bool feedback);
void fuse_give_blocks(struct fuse *fuse);
/* Tensors have moved: what rounding of sums has lost belongs to no element any more. */
void fuse_clear_blocks(struct fuse *fuse);
uint64_t fuse_blocks_bytes(const struct fuse *fuse, int buffer);
void fuse_pack_blocks(struct fuse *fuse, int buffer);
void fuse_unpack_blocks(struct fuse *fuse, int buffer);
/* All ranks' parts of this rank's shard become its sum. The buffer was sent. */
void fuse_sum_blocks(struct fuse *fuse, int buffer);
/* The calls that bring ranks their shards, and the sums to all. */
struct comm_call fuse_exchange_call(const struct fuse *fuse, int buffer);
struct comm_call fuse_gather_call(const struct fuse *fuse, int buffer);

/* issue.c: submits what can go now. Any thread, lock not held. */
void fuse_issue(struct fuse *fuse);
/* At the end of a step: how the next one's buffers travel. */
void fuse_judge_pace(struct fuse *fuse);

/* agree.c */
/* Whether all ranks make the same fuse, and can; mine: how it went on this rank. */
enum shoal_status fuse_compare(const struct fuse *fuse, const struct shoal_fuse_options *options,
                               enum shoal_status mine);
/* Whether all ranks have their groups. */
enum shoal_status fuse_confirm(const struct fuse *fuse, enum shoal_status mine);
/* At the end of the first step: takes over rank 0's order, and moves the tensors. */
enum shoal_status fuse_agree_order(struct fuse *fuse);

#endif
