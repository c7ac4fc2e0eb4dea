/* SPDX-License-Identifier: Apache-2.0 */
/* served.h: allreduce in which servers sum as well. */
#ifndef SHOAL_COLL_SERVED_H
#define SHOAL_COLL_SERVED_H

#include "comm/schedule.h"

/* shape->server_count is not 0. Every sum in the order of ranks, as direct.c. Fails only when
 * memory does. */
enum shoal_status coll_served_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder);

#endif
