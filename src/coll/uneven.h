/* SPDX-License-Identifier: Apache-2.0 */
/* uneven.h: allreduce by the shape's shares. */
#ifndef SHOAL_COLL_UNEVEN_H
#define SHOAL_COLL_UNEVEN_H

#include "comm/schedule.h"

enum uneven_order {
    UNEVEN_RANKS, /* every sum in the order of ranks: as direct.c */
    UNEVEN_RING   /* of the p blocks of the buffer as a ring sums them: as ring.c */
};

/* shape->shares is there. Fails only when memory does. */
enum shoal_status coll_uneven_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder, enum uneven_order order);

#endif
