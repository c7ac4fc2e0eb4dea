/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation.h: one collective on all ranks of a group: its buffers, what they must hold at its end,
 * and the check, made the moment the engine says done. After that the buffers are overwritten, so
 * that a late reader spoils a peer's result and a late writer is seen by operation_end().
 */
#ifndef SHOAL_TESTS_OPERATION_H
#define SHOAL_TESTS_OPERATION_H

#include "base/status.h"
#include "support/coll_case.h"
#include "support/engines.h"

enum operation_values {
    VALUES_EXACT,    /* every order of summation gives the same bits */
    VALUES_ANY,      /* rounding matters: compared with one reduce in the order of ranks, or, where
                      * the algorithm has another tree, between the ranks */
    VALUES_PERIODIC, /* as ANY, but every third element is the same; so must the results be */
    VALUES_HALVES, /* every order gives the same sums in f32, but those of less than all ranks don't
                    * fit in 16 bits: compared with the reference, which rounds once */
};

struct operation_options {
    struct coll_case coll;
    enum shoal_dtype dtype;
    enum shoal_op op;
    enum operation_values values;
    uint64_t seed;
};

struct operation_rank {
    struct operation *operation;
    int rank;
    unsigned char *memory, *expected; /* input and output with guards; [memory_bytes] */
    size_t memory_bytes;
    unsigned char *in, *out; /* in memory */
    struct comm_call call;
    struct coll_shape shape;
    struct comm_plan *plan;
    bool started, done;
    enum shoal_status status;
    char text[BASE_ERROR_TEXT_BYTES]; /* of the error */
    int64_t deadline_ns, done_ns;
};

struct operation {
    struct operation_options options;
    struct engines_group *group;
    struct coll_group *shapes;
    uint64_t sum_count;    /* elements of every rank's input, of a reduction */
    unsigned char *result; /* [sum_count] of a reduction */
    bool *known;           /* [sum_count] result was found on a rank; NULL: result was computed */
    size_t elem_bytes;
    int started;
    char wrong[256]; /* the first thing that was wrong with a result; "" */
    struct operation_rank rank[ENGINES_MAX];
};

/* False in *fits (and nothing made) if the algorithm does not do the shape. */
enum shoal_status operation_create(const struct operation_options *options,
                                   struct engines_group *group, bool *fits, struct operation **out);
/* Takes the next sequence number of the rank and starts it there. cached: by the group's cache of
 * plans. */
enum shoal_status operation_start(struct operation *operation, int rank, bool cached);
/* Changes what one rank calls, before its start; rank's buffers become large enough for anything
 * that the tests call. */
void operation_disagree(struct operation *operation, int rank,
                        const struct operation_options *with);
/* Whether it is done on all ranks that started it. */
bool operation_done(const struct operation *operation);
/* Frees it. False if a result was wrong, or something touched the buffers afterwards: *text says
 * what. Its group is closed, or nothing of it runs any more. */
bool operation_end(struct operation *operation, char *text, size_t text_bytes);
/* "allreduce ring, 5 ranks, …, f32 sum". */
const char *operation_text(const struct operation_options *options);

/* ---- values, for other tests too --------------------------------------------------------------
 */

/* Fills count elements as rank's input. */
void values_fill(const struct operation_options *options, int rank, void *out, uint64_t count);

#endif
