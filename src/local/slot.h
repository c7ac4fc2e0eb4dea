/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.h: what a rank shares with its local peers for one group, and the state it keeps to itself.
 *
 * An operation is cut in blocks, the same number on all ranks; blocks are numbered through for the
 * life of the group. For each block a rank goes through three moves and publishes a number after
 * each:
 *
 *   put     copies what the others need from it into its stage      -> stamps[block % STAMPS]
 *   reduce  sums its slice of all stages into out and its result    -> reduced
 *   take    copies what it needs out of the others' memory          -> taken
 *
 * all as "block + 1". Only sums of slices have the middle one.
 *
 * Invariants
 *  1. Only its owner writes a slot, but for `failure`, which the first peer to fail writes, and for
 *     the stages of two ranks, of which one may write the other's (local_op: in_peer, swaps).
 *  2. A number is published after the data it stands for was written (release), and looked at
 * before that data is read (acquire).
 *  3. put(b) waits until all peers took b - STAGES, or b - STAMPS where all of it lies in the
 *     stamp; so a stamp, stage or result that is still read is never written, and a stamp never
 *     skips one that somebody waits for.
 *  4. The stamp of an operation's first block carries its signature, and small payloads themselves,
 *     or whether the rank's buffers can be used where they lie (direct.h).
 *  5. Who sleeps has, after its last change of `awaited`, found that rank's number missing; who
 *     publishes a number looks at `awaited` after it. So the one that is awaited sees that it is.
 *     Who does not sleep in this group awaits nobody in it, and sleeps on undisturbed elsewhere.
 */
#ifndef SHOAL_LOCAL_SLOT_H
#define SHOAL_LOCAL_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"

#define LOCAL_STAGES 4
#define LOCAL_STAMPS 16 /* so far a root runs ahead with payloads that fit the stamp */
#define LOCAL_HISTORY                                                    \
    64 /* operations that a slot remembers: catching up, a rank compares \
        * calls that are up to twice LOCAL_STAMPS old */
#define LOCAL_INLINE_BYTES 48

/* local_slot.awaited */
enum { LOCAL_AWAITS_NOBODY = 0, LOCAL_AWAITS_ANY = 1, LOCAL_AWAITS_RANK = 2 };

struct local_stamp {
    _Alignas(64) atomic_ullong number;
    uint64_t signature;
    unsigned char payload[LOCAL_INLINE_BYTES];
};
_Static_assert(sizeof(struct local_stamp) == 64, "a stamp is one cache line");

/* What the owner called: see history.h. */
struct local_record {
    atomic_ullong sequence; /* written last */
    atomic_ullong signature;
};

struct local_slot {
    struct local_stamp stamps[LOCAL_STAMPS];
    _Alignas(64) atomic_ullong reduced;
    _Alignas(64) atomic_ullong taken;
    atomic_int core;    /* plus 1; where the owner last waited long; 0: nowhere yet */
    atomic_int working; /* the owner reads or writes peers' buffers: direct.h */
    atomic_int awaited; /* the owner, if asleep in an operation of this group, waits for news of
                         * this rank, plus LOCAL_AWAITS_RANK; LOCAL_AWAITS_ANY: of any */
    _Alignas(64) atomic_ullong staged;     /* of a first block that was offered: it is staged now */
    _Alignas(64) atomic_int failure_state; /* 0 none, 1 being written, 2 there */
    int32_t failure_status;
    char failure_text[BASE_ERROR_TEXT_BYTES];
    _Alignas(64) struct local_record history[LOCAL_HISTORY];
    _Alignas(4096) unsigned char stage[]; /* LOCAL_STAGES blocks, then as many results; their
                                           * memory is taken before it is first written */
};

struct local_group {
    struct comm_group *group;
    struct local_slot *own;
    struct local_slot **slots; /* [size] by group rank; NULL until found */
    struct base_bell **bells;  /* [size] */
    int *event_fds;            /* [size] */
    int *local_index;          /* [size] index in the host's tables */
    bool attached;             /* all slots are found */
    bool given_up;             /* an operation ended amid its moves */
    size_t own_offset;
    size_t stage_taken[LOCAL_STAGES]; /* so much of each of the own blocks has its memory */
    size_t lent_taken[LOCAL_STAGES];  /* and of the peer's, where this rank writes those */
    size_t result_taken[LOCAL_STAGES];
    bool may_swap;          /* two ranks, and this one can take memory for the peer's stage */
    size_t block_bytes;     /* of a stage block */
    size_t slice_bytes;     /* of a result, and of a block's part per rank: block_bytes / size */
    size_t symmetric_bytes; /* up to here every rank sums everything itself */
    size_t stream_bytes;    /* an output from here on is stored around the cache */
    size_t direct_bytes;    /* buffers in shared memory above this are used where they lie */
    uint64_t next_block;    /* number of the next operation's first block */
    int looks;              /* without a pause, at the next wait: fewer after vain ones */
    int64_t left_core_ns;   /* when this rank last left a core that it shared with a peer */
    uint64_t known_taken;   /* all peers have taken at least so many */
    uint64_t *compared;     /* [size] with that rank's calls all operations before this one were */
};

enum local_mode {
    LOCAL_INLINE,    /* payload in the stamp; whoever needs a sum sums all */
    LOCAL_SYMMETRIC, /* payload in the stage; whoever needs a sum sums all */
    LOCAL_SLICED     /* each rank sums a slice, or gets a part */
};

/* How far an operation has come in choosing between the peers' stages and their buffers. */
enum local_way {
    LOCAL_BY_BLOCKS, /* through the stages, block by block */
    LOCAL_OFFERED,   /* waits for all answers */
    LOCAL_WORKED     /* directly; its own part is done */
};

/* One operation under way. */
struct local_op {
    struct comm_task task; /* when it runs in the engine */
    struct local_group *local;
    struct comm_call call;
    uint64_t sequence;
    uint64_t signature; /* packed */
    enum local_mode mode;
    bool reduces;   /* has the middle move */
    bool streams;   /* its output goes around the cache */
    bool in_peer;   /* two ranks: each sums its slice in the other's stage */
    bool swaps;     /* two ranks: they change stages after every LOCAL_STAGES blocks */
    bool offerable; /* stamps of the first block hold answers */
    bool offers;    /* this rank's buffers can be used where they lie */
    bool stopped;   /* its direct work ended early, because the group failed */
    enum local_way way;
    size_t elem_bytes;
    size_t bytes;         /* of the buffer or the largest part */
    uint64_t block_count; /* of the operation */
    uint64_t block_elems; /* elements of a block, or of a rank's part of it */
    uint64_t first_block;
    uint64_t round; /* of the loop over blocks */
    int move;       /* within the round: 0 put, 1 reduce, 2 take */
    int waits_for;  /* rank whose number is looked at next */
};

static inline bool local_sums(const struct local_op *op)
{
    enum coll_kind kind = op->call.kind;
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
}

/* moves.c */
/* Fills mode, blocks and elements from the call. */
void local_op_lay_out(struct local_op *op);
/* Takes memory for what this rank writes of block b; false if there is none: then the group broke.
 */
bool local_take_stage(struct local_op *op, uint64_t b);
/* The moves on block b of the operation (0 …). */
void local_put(struct local_op *op, uint64_t b);
void local_reduce(struct local_op *op, uint64_t b);
void local_take(struct local_op *op, uint64_t b);
/* Whether this rank's take needs that rank's data. */
bool local_takes_from(const struct local_op *op, int rank);

/* The rank in whose slot that rank stages a block. */
static inline int local_holder(const struct local_op *op, int rank, uint64_t block)
{
    return op->swaps && block / LOCAL_STAGES % 2 == 1 ? 1 - rank : rank;
}

static inline unsigned char *local_stage(const struct local_op *op, int rank, uint64_t block)
{
    const struct local_group *local = op->local;
    return local->slots[local_holder(op, rank, block)]->stage +
           (block % LOCAL_STAGES) * local->block_bytes;
}

static inline unsigned char *local_result(const struct local_group *local, int rank, uint64_t block)
{
    return local->slots[rank]->stage + LOCAL_STAGES * local->block_bytes +
           (block % LOCAL_STAGES) * local->slice_bytes;
}

#endif
