/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.h: every algorithm, named <file>_<kind>; algorithms.c puts them in one list. */
#ifndef SHOAL_COLL_ALGORITHMS_H
#define SHOAL_COLL_ALGORITHMS_H

#include "coll/coll.h"

extern const struct coll_algorithm direct_allreduce, direct_reduce, direct_broadcast,
    direct_allgather, direct_gather, direct_reduce_scatter, direct_scatter, direct_alltoall,
    direct_barrier;
extern const struct coll_algorithm exchange_allreduce, exchange_reduce, exchange_broadcast;

#endif
