/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.h: every algorithm, named <file>_<kind>; algorithms.c puts them in one list. */
#ifndef SHOAL_COLL_ALGORITHMS_H
#define SHOAL_COLL_ALGORITHMS_H

#include "coll/coll.h"

extern const struct coll_algorithm direct_allreduce, direct_reduce, direct_broadcast,
    direct_allgather, direct_gather, direct_reduce_scatter, direct_scatter, direct_alltoall,
    direct_barrier;
extern const struct coll_algorithm exchange_allreduce, exchange_reduce, exchange_broadcast;
extern const struct coll_algorithm recursive_doubling_allreduce;
extern const struct coll_algorithm halving_doubling_allreduce, halving_reduce_scatter;
extern const struct coll_algorithm ring_allreduce, ring_reduce_scatter, ring_allgather;
extern const struct coll_algorithm binomial_broadcast, binomial_reduce, binomial_gather,
    binomial_scatter;
extern const struct coll_algorithm bruck_allgather, bruck_alltoall;
extern const struct coll_algorithm pairwise_alltoall, pairwise_reduce_scatter;
extern const struct coll_algorithm dissemination_barrier;
extern const struct coll_algorithm chain_broadcast;
extern const struct coll_algorithm two_level_allreduce, two_level_reduce, two_level_broadcast,
    two_level_allgather, two_level_reduce_scatter;

#endif
