/* SPDX-License-Identifier: Apache-2.0 */
/* verify_memory.c: where the buffers of one rank lie, how far they reach, what they hold first. */
#include "coll/verify.h"

#include "base/memory.h"
#include "base/status.h"

/* The end of the last block. */
static uint64_t blocks_extent(const struct coll_shape *shape)
{
    uint64_t extent = 0;
    for (int i = 0; i < shape->size; i++) {
        uint64_t end = schedule_block_offset(shape, i) + schedule_block_count(shape, i);
        if (end > extent)
            extent = end;
    }
    return extent;
}

static uint64_t input_extent(const struct coll_shape *shape)
{
    bool at_root = shape->rank == shape->root;
    if (shape->rank >= schedule_rank_count(shape))
        return 0;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE: return shape->count;
    case COLL_BROADCAST: return at_root ? shape->count : 0;
    case COLL_ALLGATHER:
    case COLL_GATHER: return schedule_block_count(shape, shape->rank);
    case COLL_SCATTER: return at_root ? blocks_extent(shape) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_ALLTOALL: return blocks_extent(shape);
    default: return 0;
    }
}

static uint64_t output_extent(const struct coll_shape *shape)
{
    bool at_root = shape->rank == shape->root;
    struct coll_shape receiving = *shape;
    if (shape->rank >= schedule_rank_count(shape))
        return 0;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_BROADCAST: return shape->count;
    case COLL_REDUCE: return at_root ? shape->count : 0;
    case COLL_ALLGATHER: return blocks_extent(shape);
    case COLL_GATHER: return at_root ? blocks_extent(shape) : 0;
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER: return schedule_block_count(shape, shape->rank);
    case COLL_ALLTOALL:
        if (shape->counts) {
            receiving.counts = shape->recv_counts;
            receiving.displs = shape->recv_displs;
        }
        return blocks_extent(&receiving);
    default: return 0;
    }
}

/* Puts input and output over each other as shoal.h says for the kind. */
static void alias(const struct coll_shape *shape, struct memory *memory)
{
    bool at_root = shape->rank == shape->root;
    memory->aliased = shape->in_place && shape->kind != COLL_ALLTOALL;
    switch (shape->kind) {
    case COLL_GATHER: memory->aliased = shape->in_place && at_root; /* fall through */
    case COLL_ALLGATHER:
        memory->base[BUFFER_INPUT] = schedule_block_offset(shape, shape->rank);
        break;
    case COLL_SCATTER: memory->aliased = shape->in_place && at_root; /* fall through */
    case COLL_REDUCE_SCATTER:
        memory->base[BUFFER_OUTPUT] = schedule_block_offset(shape, shape->rank);
        break;
    default: break;
    }
    if (!memory->aliased) {
        memory->base[BUFFER_INPUT] = 0;
        memory->base[BUFFER_OUTPUT] = memory->extent[BUFFER_INPUT];
    }
}

struct cell coll_memory_initial(const struct coll_shape *shape, const struct memory *memory,
                                uint64_t cell)
{
    const uint64_t *base = memory->base, *extent = memory->extent;
    if (cell >= base[BUFFER_SCRATCH])
        return (struct cell){TREE_UNSET, 0};
    if (cell >= base[BUFFER_INPUT] && cell - base[BUFFER_INPUT] < extent[BUFFER_INPUT])
        return (struct cell){(uint32_t)shape->rank, (uint32_t)(cell - base[BUFFER_INPUT])};
    return (struct cell){TREE_OLD, (uint32_t)(cell - base[BUFFER_OUTPUT])};
}

#define CELLS_MAX (UINT64_C(1) << 28)

enum shoal_status coll_memory_init(const struct coll_shape *shape, const struct schedule *schedule,
                                   struct memory *memory)
{
    *memory = (struct memory){.extent = {input_extent(shape), output_extent(shape),
                                         schedule->scratch_count, schedule->wide_count}};
    alias(shape, memory);
    uint64_t end = 0;
    for (int buffer = BUFFER_INPUT; buffer <= BUFFER_OUTPUT; buffer++)
        if (memory->base[buffer] + memory->extent[buffer] > end)
            end = memory->base[buffer] + memory->extent[buffer];
    memory->base[BUFFER_SCRATCH] = end;
    memory->base[BUFFER_WIDE] = end + memory->extent[BUFFER_SCRATCH];
    memory->cell_count = memory->base[BUFFER_WIDE] + memory->extent[BUFFER_WIDE];
    if (memory->cell_count > CELLS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "too many elements to verify: use smaller counts");
    TRY(BASE_NEW_ARRAY(&memory->cells, memory->cell_count, "the verifier's memory"));
    for (uint64_t cell = 0; cell < memory->cell_count; cell++)
        memory->cells[cell] = coll_memory_initial(shape, memory, cell);
    return SHOAL_OK;
}

void coll_memory_release(struct memory *memory)
{
    base_free(memory->cells);
    memory->cells = NULL;
}
