/* SPDX-License-Identifier: Apache-2.0 */
/* uneven.h: an exchange whose owners sum unequal shares of the buffer; some may be servers. */
#ifndef SHOAL_COLL_UNEVEN_H
#define SHOAL_COLL_UNEVEN_H

#include "coll/owners.h"
#include "coll/team.h"

/* Sums over one team, piece by piece. */
struct uneven {
    struct schedule_builder *builder;
    struct team team;
    uint32_t *shares;          /* [team.size] */
    struct part *parts;        /* [team.size] of the piece in hand */
    uint64_t piece_count;      /* elements of a piece, the last one's excepted */
    uint64_t pieces_begun;     /* so far */
    uint64_t sum_count;        /* most elements that a server sums of a piece */
    struct schedule_span sums; /* of a server, for a few pieces: where they lie while they leave */
};

/* For the owners of a sum of `count` elements with the shape's shares or servers: `ranks` has each
 * owner's rank and stays; `me` is the caller's place in it. Elements are `elem_bytes` wide while
 * they are summed. Fails only when memory does. */
enum shoal_status coll_uneven_init(const struct coll_shape *shape, struct schedule_builder *builder,
                                   enum owners owners, const int *ranks, int me, uint64_t count,
                                   size_t elem_bytes, struct uneven *uneven);
void coll_uneven_release(struct uneven *uneven);

/* All ranks of the team get the sum of `from` at `into`. On a server both say only how many and how
 * wide elements are. Fails only when memory does. */
enum shoal_status coll_uneven_piece(struct uneven *uneven, struct schedule_span from,
                                    struct schedule_span into);

enum uneven_order {
    UNEVEN_RANKS, /* every sum in the order of ranks: as direct.c */
    UNEVEN_RING   /* of the p blocks of the buffer as a ring sums them: as ring.c */
};

/* A whole allreduce by the shape's shares or with servers, the ranks being the owners. Fails only
 * when memory does. */
enum shoal_status coll_uneven_allreduce(const struct coll_shape *shape,
                                        struct schedule_builder *builder, enum uneven_order order);

/* Whether the shape needs any of this. */
static inline bool coll_is_uneven(const struct coll_shape *shape)
{
    return shape->shares != NULL || shape->server_count > 0;
}

#endif
