/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dissemination.c: barrier in log2 p rounds for any p (Hensgen, Finkel, Manber: Two algorithms for
 * barrier synchronization, 1988).
 *
 * In round k rank r signals rank r + 2^k and waits for rank r - 2^k. After it, r has heard of the
 * 2^(k+1) ranks before it and itself.
 */
#include "coll/algorithms.h"

static enum shoal_status emit_barrier(const struct coll_shape *shape,
                                      struct schedule_builder *builder)
{
    for (int distance = 1; distance < shape->size; distance *= 2) {
        schedule_signal(builder, (shape->rank + distance) % shape->size);
        schedule_await(builder, (shape->rank + shape->size - distance) % shape->size);
    }
    return SHOAL_OK;
}

const struct coll_algorithm coll_dissemination_barrier = {
    .name = "dissemination",
    .kind = COLL_BARRIER,
    .summary = "signals to rank r+1, r+2, r+4, …: log2 p rounds",
    .same_tree = true,
    .one_reduce = true,
    .emit = emit_barrier,
};
