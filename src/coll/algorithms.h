/* SPDX-License-Identifier: Apache-2.0 */
/* algorithms.h: every algorithm, named coll_<name>_<kind>; algorithms.c puts them in one list. */
#ifndef SHOAL_COLL_ALGORITHMS_H
#define SHOAL_COLL_ALGORITHMS_H

#include "coll/coll.h"

extern const struct coll_algorithm coll_direct_allreduce, coll_direct_reduce, coll_direct_broadcast,
    coll_direct_allgather, coll_direct_gather, coll_direct_reduce_scatter, coll_direct_scatter,
    coll_direct_alltoall, coll_direct_barrier;
extern const struct coll_algorithm coll_exchange_allreduce, coll_exchange_reduce,
    coll_exchange_broadcast;
extern const struct coll_algorithm coll_recursive_doubling_allreduce;
extern const struct coll_algorithm coll_halving_doubling_allreduce, coll_halving_reduce_scatter;
extern const struct coll_algorithm coll_ring_allreduce, coll_ring_reduce_scatter,
    coll_ring_allgather;
extern const struct coll_algorithm coll_binomial_broadcast, coll_binomial_reduce,
    coll_binomial_gather, coll_binomial_scatter;
extern const struct coll_algorithm coll_bruck_allgather, coll_bruck_alltoall;
extern const struct coll_algorithm coll_pairwise_alltoall, coll_pairwise_reduce_scatter;
extern const struct coll_algorithm coll_dissemination_barrier;
extern const struct coll_algorithm coll_chain_broadcast;
extern const struct coll_algorithm coll_two_level_allreduce, coll_two_level_reduce,
    coll_two_level_broadcast, coll_two_level_allgather, coll_two_level_reduce_scatter;

#endif
