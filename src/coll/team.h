/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h: direct exchanges among some of a group's ranks, from which the direct and the two-level
 * algorithms are put together.
 *
 * A team works on a range of elements that is cut in parts, one per member. Every function is
 * called by all members with equal teams, parts and pace, each with its own `me`; a rank that is no
 * member does not call. Messages are cut in segments, and each member serves its peers in rotated
 * order (the next one first), so that at no time all send to one.
 */
#ifndef SHOAL_COLL_TEAM_H
#define SHOAL_COLL_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"

struct part {
    uint64_t offset, count; /* elements; the offset is from the range's begin */
};

struct team {
    const int *ranks; /* [size] of the group, borrowed */
    int size;
    int me;    /* index of the caller in ranks */
    int first; /* whose data comes first in a sum; the others follow in their order, around */
    int server_count; /* of its last members: they have no data, and get none but to sum it. Of
                       * coll_team_reduce and coll_team_share */
    /* Of coll_team_reduce, zeroed to start. One team sums inputs or sums, not both. */
    bool again;                 /* it is called several times: slots for a whole window at once */
    struct schedule_span slots; /* scratch, kept for the next call */
    uint64_t segments_reduced;
};

/* Cuts count elements in parts that differ by at most one element. */
void coll_parts_cut(uint64_t count, struct part *parts, int part_count);
/* The shape's blocks on the side that has p of them. */
void coll_parts_of_blocks(const struct coll_shape *shape, struct part *parts);

/* The span of a part that begins at `base`'s offset. */
struct schedule_span coll_part_at(struct schedule_span base, struct part part);

/* Member i gets the sum of all members' part i, in the order of the team from `first` on, in one
 * reduce per segment. `from`: where the caller's range begins, inputs on all members or sums on
 * all; `to`: where its own part's sum goes. Scratch: a window of segments per peer. */
enum shoal_status coll_team_reduce(struct schedule_builder *builder, struct team *team,
                                   const struct part *parts, struct schedule_span from,
                                   struct schedule_span to, uint64_t segment_count, bool final);

/* Every member's own part goes to all others. `own`: where the caller's part is; `into`: where its
 * range begins, in which its own part appears too. */
void coll_team_share(struct schedule_builder *builder, const struct team *team,
                     const struct part *parts, struct schedule_span own, struct schedule_span into,
                     uint64_t segment_count);

/* Every member's own part goes to member `root`, into the range that begins at its `into`. */
void coll_team_collect(struct schedule_builder *builder, const struct team *team,
                       const struct part *parts, int root, struct schedule_span own,
                       struct schedule_span into, uint64_t segment_count);

/* The range that begins at member `root`'s `from` goes out, to each member its own part. */
void coll_team_deal(struct schedule_builder *builder, const struct team *team,
                    const struct part *parts, int root, struct schedule_span from,
                    struct schedule_span own, uint64_t segment_count);

/* The whole operations, put together from these; counts are `into`'s or `from`'s.
 *
 * All get the final sum of all members' `from` at `into`: reduce the parts, then share them. */
enum shoal_status coll_team_allreduce(struct schedule_builder *builder, struct team *team,
                                      struct schedule_span from, struct schedule_span into,
                                      uint64_t segment_count);
/* Member `root` gets the final sum of all members' `from` at its `into`. The parts belong to the
 * others, so that the root's port carries the range once in each direction and not nearly twice;
 * with two members to the root. Of f32 sums, which come back in 16 bits, the root has a small part
 * too. */
enum shoal_status coll_team_reduce_to(struct schedule_builder *builder, struct team *team, int root,
                                      struct schedule_span from, struct schedule_span into,
                                      uint64_t segment_count);
/* All get member `root`'s `from` at `into`, the root too: it deals parts to the others, which share
 * them. */
enum shoal_status coll_team_broadcast(struct schedule_builder *builder, const struct team *team,
                                      int root, struct schedule_span from,
                                      struct schedule_span into, uint64_t segment_count);

#endif
