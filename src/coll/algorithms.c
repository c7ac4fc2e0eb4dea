/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.c: the list of algorithms, and from a name to a schedule. */
#include "coll/algorithms.h"

#include <string.h>

#include "base/status.h"

/* By kind. */
static const struct coll_algorithm *const all[] = {
    &direct_allreduce,
    &exchange_allreduce,
    &recursive_doubling_allreduce,
    &halving_doubling_allreduce,
    &ring_allreduce,
    &two_level_allreduce,
    &direct_reduce,
    &exchange_reduce,
    &binomial_reduce,
    &two_level_reduce,
    &direct_broadcast,
    &exchange_broadcast,
    &binomial_broadcast,
    &chain_broadcast,
    &two_level_broadcast,
    &direct_allgather,
    &bruck_allgather,
    &ring_allgather,
    &two_level_allgather,
    &direct_gather,
    &binomial_gather,
    &direct_reduce_scatter,
    &halving_reduce_scatter,
    &pairwise_reduce_scatter,
    &ring_reduce_scatter,
    &two_level_reduce_scatter,
    &direct_scatter,
    &binomial_scatter,
    &direct_alltoall,
    &bruck_alltoall,
    &pairwise_alltoall,
    &direct_barrier,
    &dissemination_barrier,
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
