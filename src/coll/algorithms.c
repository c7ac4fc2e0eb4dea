/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.c: the list of algorithms, and from a name to a schedule. */
#include "coll/algorithms.h"

#include <string.h>

#include "base/status.h"

/* By kind. */
static const struct coll_algorithm *const all[] = {
    &coll_direct_allreduce,
    &coll_exchange_allreduce,
    &coll_recursive_doubling_allreduce,
    &coll_halving_doubling_allreduce,
    &coll_ring_allreduce,
    &coll_two_level_allreduce,
    &coll_direct_reduce,
    &coll_exchange_reduce,
    &coll_binomial_reduce,
    &coll_two_level_reduce,
    &coll_direct_broadcast,
    &coll_exchange_broadcast,
    &coll_binomial_broadcast,
    &coll_chain_broadcast,
    &coll_two_level_broadcast,
    &coll_direct_allgather,
    &coll_bruck_allgather,
    &coll_ring_allgather,
    &coll_two_level_allgather,
    &coll_direct_gather,
    &coll_binomial_gather,
    &coll_direct_reduce_scatter,
    &coll_halving_reduce_scatter,
    &coll_pairwise_reduce_scatter,
    &coll_ring_reduce_scatter,
    &coll_two_level_reduce_scatter,
    &coll_direct_scatter,
    &coll_binomial_scatter,
    &coll_direct_alltoall,
    &coll_bruck_alltoall,
    &coll_pairwise_alltoall,
    &coll_direct_barrier,
    &coll_dissemination_barrier,
    NULL,
};

const struct coll_algorithm *const *coll_algorithms(void)
{
    return all;
}

const struct coll_algorithm *coll_find(enum coll_kind kind, const char *name)
{
    for (int i = 0; all[i]; i++)
        if (all[i]->kind == kind && strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

enum shoal_status coll_schedule(const struct coll_algorithm *algorithm,
                                const struct coll_shape *shape, struct schedule **out)
{
    BASE_ASSERT(algorithm->kind == shape->kind && shape->segment_count > 0);
    struct schedule_builder *builder;
    TRY(schedule_builder_create(shape, &builder));
    enum shoal_status status = algorithm->emit(shape, builder);
    if (status != SHOAL_OK) {
        schedule_builder_free(builder);
        return status;
    }
    return schedule_finish(builder, algorithm->name, out);
}
