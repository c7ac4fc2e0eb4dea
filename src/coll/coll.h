/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll.h: the algorithms, the table that chooses among them, and the verifier.
 *
 * An algorithm is one pure function: shape in, schedule out (comm/schedule.h). No I/O, no clock, no
 * state. The verifier runs all ranks' schedules symbolically; it proves every algorithm for every
 * number of ranks that the tests give it, and `shoal plan` runs it on what it shows.
 */
#ifndef SHOAL_COLL_COLL_H
#define SHOAL_COLL_COLL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"
#include "shoal.h"

struct coll_algorithm {
    const char *name; /* "ring", "direct", … unique within a kind */
    enum coll_kind kind;
    const char *summary; /* one line: how, rounds, bytes per rank, source */
    bool same_tree;      /* sums every element in one and the same tree wherever it lies */
    bool one_reduce;     /* all inputs of an element meet in one reduce, in the order of ranks */
    bool follows_shares; /* sums by the shape's shares, with the same bits whatever they are */
    bool takes_servers;  /* can do shapes with servers */
    /* Whether it can do the shape (sizes that are powers of two, several hosts, …). NULL: always.
     */
    bool (*fits)(const struct coll_shape *shape);
    /* Emits this rank's steps. Fails only when memory does. */
    enum shoal_status (*emit)(const struct coll_shape *shape, struct schedule_builder *builder);
};

/* All algorithms, ended by NULL. */
const struct coll_algorithm *const *coll_algorithms(void);
/* By kind and name, NULL if there is none. */
const struct coll_algorithm *coll_find(enum coll_kind kind, const char *name);

/* What the choice may depend on besides the shape; all of it the same on every rank. */
struct coll_choice {
    enum shoal_dtype dtype;
    bool reproducible; /* only the one tree per kind of same_tree and one_reduce algorithms */
    const char
        *forced; /* option SHOAL_ALGORITHM; NULL or "auto": the table. "kind:name" or "name" */
};

/* The one table of who wins when. Never NULL for COLL_ALLREDUCE to COLL_BARRIER. */
enum shoal_status coll_choose(const struct coll_shape *shape, const struct coll_choice *choice,
                              const struct coll_algorithm **out);

/* Why coll_choose chooses what it chooses, in one line. */
enum shoal_status coll_explain(const struct coll_shape *shape, const struct coll_choice *choice,
                               char *text, size_t text_bytes);

/* In less, a server's first word of an operation costs more than its part of the work is worth. */
#define COLL_SERVED_BYTES_MIN (UINT64_C(128) << 10)

/* Segment (elements) that the table gives to a shape when nothing is forced. */
uint64_t coll_segment_count(const struct coll_shape *shape);

/* Emits and finishes. */
enum shoal_status coll_schedule(const struct coll_algorithm *algorithm,
                                const struct coll_shape *shape, struct schedule **out);

/* ---- verifier
 * -------------------------------------------------------------------------------------- */

struct coll_report {
    uint32_t rounds;         /* longest chain of messages */
    uint64_t bytes_sent_max; /* by one rank */
    uint64_t scratch_bytes_max;
    bool same_tree;  /* every element of every output was summed in the same tree */
    bool one_reduce; /* which is one reduce over all inputs, in the order of ranks */
    uint64_t order;  /* hash of the order of every element's sum: equal ones have equal bits */
};

/* shapes[size], schedules[size] of all ranks. Proves that: messages match in number and length; no
 * deadlock even when a send ends only with its receive; no two steps that may run at once touch the
 * same element with one of them writing; INPUT is never written unless in place; every element of
 * every output holds each input it should exactly once, and the same tree on every rank; each sum
 * of 16-bit floats is rounded once, when it is complete; parts of the output that are not the
 * result are untouched. SHOAL_ERR_INTERNAL with a text that names rank, step and element. Cost
 * grows with the elements: use small counts. */
enum shoal_status coll_verify(const struct coll_shape *shapes, struct schedule *const *schedules,
                              struct coll_report *report);

/* For each step of all ranks, rank by rank, the number of messages in the longest chain that ends
 * with it; a message counts itself. *out_count: the largest. */
enum shoal_status coll_rounds(struct schedule *const *schedules, int size, uint32_t *rounds,
                              uint32_t *out_count);

#endif
