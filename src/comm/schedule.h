/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule.h: a collective algorithm as data.
 *
 * A schedule is what one rank does in one operation: steps (send, receive, reduce, copy) on spans
 * of buffers (input, output, scratch), each with the steps it must wait for. Algorithms in
 * coll/ emit it, the engine runs it, the verifier proves it, `shoal plan` shows it.
 *
 * Program order makes the dependencies: an emitter writes its steps as if they ran one after the
 * other, and the builder finds by the spans which must really wait (read after write, write after
 * read, write after write). All others run as soon as their peers are ready. So an algorithm's text
 * is its paper's text.
 *
 * Messages: the k-th send of rank i to rank j, in program order, matches the k-th receive of rank j
 * from rank i, and both must have the same length. The builder counts them (`message`).
 *
 * Units: spans are in elements of the shape's elem_bytes. Offsets of INPUT and OUTPUT are from the
 * caller's pointers.
 *
 * Rounding: sums of 16-bit floats are made in f32 and rounded once. So of these a partial sum lies
 * in WIDE, whose elements are f32, and travels from WIDE to WIDE; only the reduce that completes a
 * sum, which is final, writes to another buffer. A reduce or copy may mix WIDE with the others.
 * Emitters ask for schedule_sums() and schedule_sums_at(), which give what the dtype needs.
 *
 * In place: shape.in_place makes INPUT and OUTPUT overlap as shoal.h says for the kind; the builder
 * then compares spans by their real position. An emitter never writes to INPUT.
 */
#ifndef SHOAL_COMM_SCHEDULE_H
#define SHOAL_COMM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

enum coll_kind {
    COLL_ALLREDUCE = 0,
    COLL_REDUCE,
    COLL_BROADCAST,
    COLL_ALLGATHER, /* also v: counts and displs */
    COLL_GATHER,    /* also v */
    COLL_REDUCE_SCATTER,
    COLL_SCATTER,
    COLL_ALLTOALL, /* also v */
    COLL_BARRIER,
    COLL_SEND, /* not scheduled: the engine's point to point */
    COLL_RECV,
    COLL_KIND_COUNT
};

/* "allreduce"; the C functions of the v forms have the same kind. */
const char *comm_kind_name(enum coll_kind kind);

#define SCHEDULE_SHARES_WHOLE 65536u

/* Everything an emitter may look at. The same on all ranks but for `rank` (and alltoallv's counts).
 */
struct coll_shape {
    enum coll_kind kind;
    int rank, size;
    int root; /* reduce, broadcast, gather, scatter */
    size_t elem_bytes;
    bool wide_sums;         /* the elements are 16-bit floats: partial sums lie in WIDE */
    uint64_t count;         /* per rank as in shoal.h's call; v forms: unused */
    const uint64_t *counts; /* v forms: [size]; NULL: every one is `count` */
    const uint64_t *displs; /* v forms: [size] on the side with p blocks; NULL: packed */
    const uint64_t *recv_counts, *recv_displs; /* alltoallv's other side */
    bool in_place;
    const uint32_t *shares; /* [host_count] allreduce: how much of the buffer each host sums, in
                             * SCHEDULE_SHARES_WHOLE-ths; NULL: what is best for equal links */
    uint64_t segment_count; /* cut longer messages into pieces of this many elements, 1 or more */
    const int
        *host_of; /* [size] host index of each rank, hosts numbered by first rank; never NULL */
    int host_count;
    bool crowded;       /* hosts share a machine that has more ranks than cores */
    bool long_messages; /* few of them suit the caller: others like it are under way meanwhile, and
                         * links are fast */
    int server_count;   /* of `size`, the last ones: servers, which have neither input nor output */
};

/* Those with input and output. */
static inline int schedule_rank_count(const struct coll_shape *shape)
{
    return shape->size - shape->server_count;
}

/* Block i of the side with p blocks: its elements and its offset. */
uint64_t schedule_block_count(const struct coll_shape *shape, int i);
uint64_t schedule_block_offset(const struct coll_shape *shape, int i);

enum schedule_buffer {
    BUFFER_INPUT = 0,
    BUFFER_OUTPUT,
    BUFFER_SCRATCH,
    BUFFER_WIDE, /* scratch of f32 */
    BUFFER_COUNT
};

/* "input", … for shows and messages. */
const char *schedule_buffer_name(enum schedule_buffer buffer);

/* Bytes of an element in a buffer; `elem_bytes` is the shape's. */
static inline size_t schedule_elem_bytes(enum schedule_buffer buffer, size_t elem_bytes)
{
    return buffer == BUFFER_WIDE ? sizeof(float) : elem_bytes;
}

struct schedule_span {
    enum schedule_buffer buffer;
    uint64_t offset, count; /* elements */
};

static inline uint64_t schedule_span_bytes(struct schedule_span span, size_t elem_bytes)
{
    return span.count * schedule_elem_bytes(span.buffer, elem_bytes);
}

enum step_kind { STEP_SEND = 0, STEP_RECV, STEP_REDUCE, STEP_COPY };

struct schedule_step {
    enum step_kind kind;
    int peer;         /* send, recv */
    uint32_t message; /* send, recv: number of this message between the pair, this direction */
    struct schedule_span at; /* SEND: source. RECV, REDUCE, COPY: destination */
    uint32_t source_first,
        source_count; /* REDUCE, COPY: in schedule.sources, each of at.count elements */
    bool final;       /* REDUCE, COPY: the last one on these elements: apply AVG's division */
    uint32_t after_first, after_count; /* in schedule.edges: steps that wait for this one */
    uint32_t wait_count;               /* how many steps this one waits for */
    uint32_t round; /* longest path of messages before it: for plan and pictures */
};

struct schedule {
    struct schedule_step *steps;
    uint32_t step_count;
    struct schedule_span *sources;
    uint32_t source_count;
    uint32_t *edges;
    uint32_t edge_count;
    uint64_t scratch_count, wide_count; /* elements of SCRATCH and WIDE that it needs */
    const char *algorithm;              /* name, static */
};

/* Bytes of SCRATCH and WIDE. */
static inline uint64_t schedule_scratch_bytes(const struct schedule *schedule, size_t elem_bytes)
{
    return schedule->scratch_count * schedule_elem_bytes(BUFFER_SCRATCH, elem_bytes) +
           schedule->wide_count * schedule_elem_bytes(BUFFER_WIDE, elem_bytes);
}

/* ---- building ---------------------------------------------------------------------------------
 */

struct schedule_builder;

/* Starts a schedule for shape (borrowed until finish). */
enum shoal_status schedule_builder_create(const struct coll_shape *shape,
                                          struct schedule_builder **out);
void schedule_builder_free(struct schedule_builder *builder);

/* Steps. A span of count 0 emits nothing (on both sides of a message alike). Errors (memory,
 * limits) are remembered and returned by finish, so emitters need not look. */
void schedule_send(struct schedule_builder *builder, int peer, struct schedule_span from);
void schedule_recv(struct schedule_builder *builder, int peer, struct schedule_span to);
void schedule_copy(struct schedule_builder *builder, struct schedule_span to,
                   struct schedule_span from);
/* to = sources[0] op sources[1] op …, left to right; `to` may be one of them. `final`: see step. */
void schedule_reduce(struct schedule_builder *builder, struct schedule_span to,
                     const struct schedule_span *sources, int source_count, bool final);
/* A copy that is AVG's last step on data which is already summed in place (group of one, roots). */
void schedule_finalize(struct schedule_builder *builder, struct schedule_span at);
/* A message without data: the signal leaves after everything emitted so far; everything that
 * follows the await waits for it, but it holds up no signal of its own round. Barriers. */
void schedule_signal(struct schedule_builder *builder, int peer);
void schedule_await(struct schedule_builder *builder, int peer);
/* What follows waits for everything emitted so far: for algorithms that bound what is in flight. */
void schedule_fence(struct schedule_builder *builder);
/* Takes `count` elements of scratch; returned span is the emitter's for the whole schedule. Reuse
 * is the emitter's choice, by using the same span again. */
struct schedule_span schedule_scratch(struct schedule_builder *builder, uint64_t count);
/* The same for partial sums: of WIDE or, where elements are as wide as sums, of SCRATCH. */
struct schedule_span schedule_sums(struct schedule_builder *builder, uint64_t count);
/* Where the partial sums of what will lie at `place` are kept: there if it is wide enough for them,
 * else in as much of WIDE. */
struct schedule_span schedule_sums_at(struct schedule_builder *builder, struct schedule_span place);
/* Ends the building; frees the builder in any case. */
enum shoal_status schedule_finish(struct schedule_builder *builder, const char *algorithm,
                                  struct schedule **out);
void schedule_free(struct schedule *schedule);

static inline struct schedule_span span_of(enum schedule_buffer buffer, uint64_t offset,
                                           uint64_t count)
{
    struct schedule_span span = {buffer, offset, count};
    return span;
}

#endif
