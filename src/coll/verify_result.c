/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coll_verify_result.c: what each rank's memory must hold at the end.
 *
 * A result element is either one rank's input element, or the sum of that element over all ranks:
 * each once, divided after the last addition, with the same tree on all ranks that have it. All
 * other cells of input and output hold what they held before.
 */
#include "base/memory.h"
#include "base/status.h"
#include "coll/verify.h"

#define NONE UINT32_MAX

struct result {
    const struct verifier *verifier;
    uint32_t *tree_of; /* [sum_count] of each summed element, once one rank has shown it; or NONE */
    uint64_t sum_count;
    uint32_t first_tree; /* of the first sum seen; NONE: none yet */
    bool same_tree, one_reduce;
    bool *is_result; /* [cells] of the rank in hand */
};

static enum shoal_status wrong(const struct verifier *verifier, int rank, uint64_t cell,
                               const char *expected)
{
    const struct memory *memory = &verifier->memories[rank];
    char text[256];
    coll_trees_print(verifier->trees, memory->cells[cell].tree, text, sizeof(text));
    bool in_output = cell >= memory->base[BUFFER_OUTPUT] &&
                     cell - memory->base[BUFFER_OUTPUT] < memory->extent[BUFFER_OUTPUT];
    uint64_t base = memory->base[in_output ? BUFFER_OUTPUT : BUFFER_INPUT];
    return base_error(SHOAL_ERR_INTERNAL,
                      "rank %d: %s element %llu should be %s, but is %s of "
                      "element %u",
                      rank, in_output ? "output" : "input", (unsigned long long)(cell - base),
                      expected, text, memory->cells[cell].index);
}

/* Output elements [to, to+count) are elements [from, …) of rank `source`'s input. */
static enum shoal_status expect_input(const struct result *result, int rank, uint64_t to,
                                      uint64_t count, int source, uint64_t from)
{
    const struct memory *memory = &result->verifier->memories[rank];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t cell = memory->base[BUFFER_OUTPUT] + to + i;
        if (memory->cells[cell].tree != (uint32_t)source || memory->cells[cell].index != from + i)
            return wrong(result->verifier, rank, cell, "one rank's input element");
        result->is_result[cell] = true;
    }
    return SHOAL_OK;
}

static enum shoal_status expect_sum(struct result *result, int rank, uint64_t to, uint64_t count,
                                    uint64_t from)
{
    const struct memory *memory = &result->verifier->memories[rank];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t cell = memory->base[BUFFER_OUTPUT] + to + i;
        uint32_t tree = memory->cells[cell].tree;
        if (memory->cells[cell].index != from + i ||
            !coll_trees_is_complete(result->verifier->trees, tree))
            return wrong(result->verifier, rank, cell, "the complete and final sum");
        if (result->tree_of[from + i] != NONE && result->tree_of[from + i] != tree)
            return wrong(result->verifier, rank, cell, "the sum in the other ranks' order");
        result->tree_of[from + i] = tree;
        if (result->first_tree == NONE)
            result->first_tree = tree;
        result->same_tree &= tree == result->first_tree;
        result->one_reduce &= coll_trees_is_one_reduce(result->verifier->trees, tree);
        result->is_result[cell] = true;
    }
    return SHOAL_OK;
}

static enum shoal_status expect_blocks(const struct result *result, int rank)
{
    const struct verifier *verifier = result->verifier;
    struct coll_shape receiving = verifier->shapes[rank];
    bool is_alltoall = receiving.kind == COLL_ALLTOALL;
    if (is_alltoall && receiving.counts) {
        receiving.counts = receiving.recv_counts;
        receiving.displs = receiving.recv_displs;
    }
    for (int source = 0; source < verifier->size; source++)
        TRY(expect_input(result, rank, schedule_block_offset(&receiving, source),
                         schedule_block_count(&receiving, source), source,
                         is_alltoall ? schedule_block_offset(&verifier->shapes[source], rank) : 0));
    return SHOAL_OK;
}

/* Every rank must have heard of every other. */
static enum shoal_status expect_all_known(const struct verifier *verifier, int rank)
{
    size_t words = (size_t)verifier->known_words;
    const uint32_t *first = verifier->steps.first;
    for (int other = 0; other < verifier->size; other++) {
        bool known = other == rank;
        for (size_t number = first[rank]; number < first[rank + 1]; number++)
            known |= verifier->known[number * words + (size_t)other / 64] >> (other % 64) & 1;
        if (!known)
            return base_error(SHOAL_ERR_INTERNAL,
                              "rank %d leaves the barrier without having heard of rank %d", rank,
                              other);
    }
    return SHOAL_OK;
}

static enum shoal_status expect_rank(struct result *result, int rank)
{
    const struct coll_shape *shape = &result->verifier->shapes[rank];
    bool at_root = rank == shape->root;
    if (rank >= schedule_rank_count(shape))
        return SHOAL_OK; /* a server */
    switch (shape->kind) {
    case COLL_REDUCE:
        if (!at_root)
            return SHOAL_OK;
        /* fall through */
    case COLL_ALLREDUCE: return expect_sum(result, rank, 0, shape->count, 0);
    case COLL_REDUCE_SCATTER:
        return expect_sum(result, rank, 0, schedule_block_count(shape, rank),
                          schedule_block_offset(shape, rank));
    case COLL_BROADCAST: return expect_input(result, rank, 0, shape->count, shape->root, 0);
    case COLL_SCATTER:
        return expect_input(result, rank, 0, schedule_block_count(shape, rank), shape->root,
                            schedule_block_offset(&result->verifier->shapes[shape->root], rank));
    case COLL_GATHER:
        if (!at_root)
            return SHOAL_OK;
        /* fall through */
    case COLL_ALLGATHER:
    case COLL_ALLTOALL: return expect_blocks(result, rank);
    case COLL_BARRIER: return expect_all_known(result->verifier, rank);
    default: return base_error(SHOAL_ERR_INTERNAL, "an operation without a schedule");
    }
}

static enum shoal_status expect_rest(const struct result *result, int rank)
{
    const struct memory *memory = &result->verifier->memories[rank];
    for (uint64_t cell = 0; cell < memory->base[BUFFER_SCRATCH]; cell++) {
        struct cell initial = coll_memory_initial(&result->verifier->shapes[rank], memory, cell);
        if (!result->is_result[cell] && (memory->cells[cell].tree != initial.tree ||
                                         memory->cells[cell].index != initial.index))
            return wrong(result->verifier, rank, cell, "untouched");
    }
    return SHOAL_OK;
}

static enum shoal_status check_rank(struct result *result, int rank)
{
    TRY(BASE_NEW_ARRAY(&result->is_result, result->verifier->memories[rank].cell_count,
                       "the verifier's results"));
    enum shoal_status status = expect_rank(result, rank);
    if (status == SHOAL_OK)
        status = expect_rest(result, rank);
    base_free(result->is_result);
    return status;
}

/* Of all sums, by element. */
static uint64_t order_of(const struct result *result)
{
    uint64_t order = 0;
    for (uint64_t i = 0; i < result->sum_count; i++)
        if (result->tree_of[i] != NONE)
            order = order * 31 + coll_trees_order(result->verifier->trees, result->tree_of[i]);
    return order;
}

enum shoal_status coll_verify_result(const struct verifier *verifier, struct coll_report *report)
{
    struct result result = {.verifier = verifier,
                            .first_tree = NONE,
                            .same_tree = true,
                            .one_reduce = true,
                            .sum_count = verifier->memories[0].extent[BUFFER_INPUT]};
    TRY(BASE_NEW_ARRAY(&result.tree_of, result.sum_count, "the verifier's results"));
    for (uint64_t i = 0; i < result.sum_count; i++)
        result.tree_of[i] = NONE;
    enum shoal_status status = SHOAL_OK;
    for (int rank = 0; rank < verifier->size && status == SHOAL_OK; rank++)
        status = check_rank(&result, rank);
    report->order = order_of(&result);
    base_free(result.tree_of);
    report->same_tree = result.same_tree;
    report->one_reduce = result.one_reduce;
    return status;
}
