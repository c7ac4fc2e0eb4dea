/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binomial.c: broadcast, reduce, gather and scatter along a binomial tree: log2 p rounds.
 *
 * Ranks count from the root on (place 0). The parent of place v is v without its lowest set bit b;
 * its children are v + 1, v + 2, v + 4, … below v + b. So the subtree of v is the run of places
 * [v, v+b), as far as they exist, and child v + m has the run [v+m, v+2m): gather and scatter move
 * whole runs, and a reduce adds up runs in their order.
 *
 * Reduce waits for all children and adds them to the own input in one step. All elements have the
 * same tree, in the order of places.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/algorithms.h"
#include "coll/segments.h"
#include "coll/team.h"

/* This rank's view of the tree. */
struct tree {
    const struct coll_shape *shape;
    struct schedule_builder *builder;
    int place;
    int reach; /* lowest set bit of place; at the root, the first power of two not below size */
};

static struct tree tree_of(const struct coll_shape *shape, struct schedule_builder *builder)
{
    struct tree tree = {.shape = shape, .builder = builder, .reach = 1};
    tree.place = (shape->rank - shape->root + shape->size) % shape->size;
    while (tree.reach < shape->size && !(tree.place & tree.reach))
        tree.reach *= 2;
    return tree;
}

static int rank_at(const struct tree *tree, int place)
{
    return (tree->shape->root + place) % tree->shape->size;
}

static int parent_of(const struct tree *tree)
{
    return rank_at(tree, tree->place - tree->reach);
}

/* Whether v + step is a child. */
static bool has_child(const struct tree *tree, int step)
{
    return step < tree->reach && tree->place + step < tree->shape->size;
}

static enum shoal_status emit_broadcast(const struct coll_shape *shape,
                                        struct schedule_builder *builder)
{
    struct tree tree = tree_of(shape, builder);
    struct schedule_span output = span_of(BUFFER_OUTPUT, 0, shape->count), source = output;
    if (tree.place == 0)
        source = span_of(BUFFER_INPUT, 0, shape->count);
    else
        coll_segments_recv(builder, parent_of(&tree), output, shape->segment_count);
    for (int step = tree.reach / 2; step > 0; step /= 2)
        if (has_child(&tree, step))
            coll_segments_send(builder, rank_at(&tree, tree.place + step), source,
                               shape->segment_count);
    schedule_copy(builder, output, source);
    return SHOAL_OK;
}

/* Whether the child v + step has children of its own, and so sends a sum. */
static bool child_sends_sum(const struct tree *tree, int step)
{
    return step > 1 && tree->place + step + 1 < tree->shape->size;
}

#define CHILDREN_MAX 32 /* more than bits in a rank */

static enum shoal_status emit_reduce(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct tree tree = tree_of(shape, builder);
    struct schedule_span operands[CHILDREN_MAX], sum = span_of(BUFFER_OUTPUT, 0, shape->count);
    operands[0] = span_of(BUFFER_INPUT, 0, shape->count);
    int operand_count = 1;
    for (int step = 1; has_child(&tree, step); step *= 2) {
        operands[operand_count] = child_sends_sum(&tree, step)
                                      ? schedule_sums(builder, shape->count)
                                      : schedule_scratch(builder, shape->count);
        coll_segments_recv(builder, rank_at(&tree, tree.place + step), operands[operand_count++],
                           shape->segment_count);
    }
    if (tree.place != 0)
        sum = operand_count > 1 ? schedule_sums_at(builder, operands[1]) : operands[0];
    uint64_t segments = coll_segments_in(shape->count, shape->segment_count);
    for (uint64_t segment = 0; segment < segments; segment++) {
        struct schedule_span pieces[CHILDREN_MAX];
        for (int i = 0; i < operand_count; i++)
            pieces[i] = coll_segment_of(operands[i], segment, shape->segment_count);
        if (operand_count > 1 || tree.place == 0)
            schedule_reduce(builder, coll_segment_of(sum, segment, shape->segment_count), pieces,
                            operand_count, tree.place == 0);
    }
    if (tree.place != 0)
        coll_segments_send(builder, parent_of(&tree), sum, shape->segment_count);
    return SHOAL_OK;
}

/* ---- gather and scatter -------------------------------------------------------------------- */

/* Elements of the blocks of places [first, last). */
static uint64_t run_count(const struct tree *tree, int first, int last)
{
    uint64_t count = 0;
    for (int place = first; place < last && place < tree->shape->size; place++)
        count += schedule_block_count(tree->shape, rank_at(tree, place));
    return count;
}

/* At the root: whether the blocks of places [first, last) lie one after the other. */
static bool is_contiguous(const struct tree *tree, const struct part *blocks, int first, int last)
{
    for (int place = first; place + 1 < last && place + 1 < tree->shape->size; place++) {
        const struct part *here = &blocks[rank_at(tree, place)];
        if (here->offset + here->count != blocks[rank_at(tree, place + 1)].offset)
            return false;
    }
    return true;
}

/* The root's exchange with the subtree of one child: straight from or to the caller's buffer where
 * the run lies together there, else through scratch. */
static void root_exchange(const struct tree *tree, const struct part *blocks, int step)
{
    bool gathers = tree->shape->kind == COLL_GATHER;
    int first = step, last = 2 * step, child = rank_at(tree, step);
    struct schedule_span user = span_of(gathers ? BUFFER_OUTPUT : BUFFER_INPUT,
                                        blocks[child].offset, run_count(tree, first, last));
    struct schedule_span run = user;
    bool contiguous = is_contiguous(tree, blocks, first, last);
    if (!contiguous)
        run = schedule_scratch(tree->builder, user.count);
    if (gathers)
        coll_segments_recv(tree->builder, child, run, tree->shape->segment_count);
    uint64_t offset = 0;
    for (int place = first; place < last && place < tree->shape->size && !contiguous; place++) {
        const struct part *block = &blocks[rank_at(tree, place)];
        struct schedule_span there = span_of(user.buffer, block->offset, block->count);
        struct schedule_span here = coll_span_within(run, offset, block->count);
        schedule_copy(tree->builder, gathers ? there : here, gathers ? here : there);
        offset += block->count;
    }
    if (!gathers)
        coll_segments_send(tree->builder, child, run, tree->shape->segment_count);
}

static enum shoal_status emit_root(const struct tree *tree)
{
    const struct coll_shape *shape = tree->shape;
    struct part *blocks;
    TRY(BASE_NEW_ARRAY(&blocks, shape->size, "the root's blocks"));
    coll_parts_of_blocks(shape, blocks);
    struct part own = blocks[shape->root];
    for (int step = tree->reach / 2; step > 0; step /= 2)
        if (has_child(tree, step))
            root_exchange(tree, blocks, step);
    if (shape->kind == COLL_GATHER)
        schedule_copy(tree->builder, span_of(BUFFER_OUTPUT, own.offset, own.count),
                      span_of(BUFFER_INPUT, 0, own.count));
    else
        schedule_copy(tree->builder, span_of(BUFFER_OUTPUT, 0, own.count),
                      span_of(BUFFER_INPUT, own.offset, own.count));
    base_free(blocks);
    return SHOAL_OK;
}

static enum shoal_status emit_gather(const struct coll_shape *shape,
                                     struct schedule_builder *builder)
{
    struct tree tree = tree_of(shape, builder);
    if (tree.place == 0)
        return emit_root(&tree);
    struct schedule_span own = span_of(BUFFER_INPUT, 0, schedule_block_count(shape, shape->rank));
    struct schedule_span run = own;
    if (has_child(&tree, 1)) {
        run = schedule_scratch(builder, run_count(&tree, tree.place, tree.place + tree.reach));
        schedule_copy(builder, coll_span_within(run, 0, own.count), own);
    }
    uint64_t offset = own.count;
    for (int step = 1; has_child(&tree, step); step *= 2) {
        int child = tree.place + step;
        uint64_t count = run_count(&tree, child, child + step);
        coll_segments_recv(builder, rank_at(&tree, child), coll_span_within(run, offset, count),
                           shape->segment_count);
        offset += count;
    }
    coll_segments_send(builder, parent_of(&tree), run, shape->segment_count);
    return SHOAL_OK;
}

static enum shoal_status emit_scatter(const struct coll_shape *shape,
                                      struct schedule_builder *builder)
{
    struct tree tree = tree_of(shape, builder);
    if (tree.place == 0)
        return emit_root(&tree);
    struct schedule_span own = span_of(BUFFER_OUTPUT, 0, schedule_block_count(shape, shape->rank));
    struct schedule_span run = own;
    if (has_child(&tree, 1))
        run = schedule_scratch(builder, run_count(&tree, tree.place, tree.place + tree.reach));
    coll_segments_recv(builder, parent_of(&tree), run, shape->segment_count);
    for (int step = tree.reach / 2; step > 0; step /= 2) {
        if (!has_child(&tree, step))
            continue;
        int child = tree.place + step;
        uint64_t offset = run_count(&tree, tree.place, child);
        coll_segments_send(builder, rank_at(&tree, child),
                           coll_span_within(run, offset, run_count(&tree, child, child + step)),
                           shape->segment_count);
    }
    schedule_copy(builder, own, coll_span_within(run, 0, own.count));
    return SHOAL_OK;
}

const struct coll_algorithm coll_binomial_broadcast = {
    .name = "binomial",
    .kind = COLL_BROADCAST,
    .summary = "down a binomial tree: log2 p rounds, n log2 p sent by the root",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_broadcast,
};

const struct coll_algorithm coll_binomial_reduce = {
    .name = "binomial",
    .kind = COLL_REDUCE,
    .summary = "up a binomial tree, summed at each node: log2 p rounds, n sent",
    .same_tree = true,
    .emit = emit_reduce,
};

const struct coll_algorithm coll_binomial_gather = {
    .name = "binomial",
    .kind = COLL_GATHER,
    .summary = "up a binomial tree: log2 p rounds, half of all blocks sent by one rank",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_gather,
};

const struct coll_algorithm coll_binomial_scatter = {
    .name = "binomial",
    .kind = COLL_SCATTER,
    .summary = "down a binomial tree: log2 p rounds, all other blocks sent by the root",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_scatter,
};
