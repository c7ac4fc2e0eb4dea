/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c: direct exchanges: each member sends what a peer needs straight to it.
 *
 * The loops run segment by segment and within a segment over the peers, so that all links work
 * from the first segment on and the reduce of one segment overlaps with the arrival of the next.
 * What a member receives for reducing lands in a window of slots per peer; slot s is used again by
 * segment s + window, which the builder makes wait until the slot has been reduced. So scratch is
 * bounded however long the range is, and a peer cannot run ahead of the reducer: that, with the
 * rotated order, is what keeps many senders from flooding one receiver.
 */
#include "coll/team.h"

#include "base/memory.h"
#include "base/status.h"
#include "coll/segments.h"

#define WINDOW_SLOTS 4

void coll_parts_cut(uint64_t count, struct part *parts, int part_count)
{
    uint64_t each = part_count ? count / (uint64_t)part_count : 0;
    uint64_t longer = part_count ? count % (uint64_t)part_count : 0, offset = 0;
    for (int i = 0; i < part_count; i++) {
        parts[i].offset = offset;
        parts[i].count = each + ((uint64_t)i < longer);
        offset += parts[i].count;
    }
}

void coll_parts_of_blocks(const struct coll_shape *shape, struct part *parts)
{
    uint64_t packed = 0;
    for (int i = 0; i < shape->size; i++) {
        parts[i].count = schedule_block_count(shape, i);
        parts[i].offset = shape->displs ? shape->displs[i] : packed;
        packed += parts[i].count;
    }
}

struct schedule_span coll_part_at(struct schedule_span base, struct part part)
{
    return span_of(base.buffer, base.offset + part.offset, part.count);
}

static uint64_t segments_max(const struct part *parts, int part_count, uint64_t segment_count)
{
    uint64_t longest = 0;
    for (int i = 0; i < part_count; i++)
        if (parts[i].count > longest)
            longest = parts[i].count;
    return coll_segments_in(longest, segment_count);
}

/* How many have data; the others are servers. */
static int data_count(const struct team *team)
{
    return team->size - team->server_count;
}

static bool has_data(const struct team *team, int member)
{
    return member < data_count(team);
}

/* The member `turn` places after the caller, which may be less than 0: in a circle of members and,
 * behind it, one of servers, so that not all members begin with the same server. */
static int member_at(const struct team *team, int distance, int turn)
{
    int members = data_count(team), servers = team->server_count;
    if (has_data(team, team->me) ? distance < members : distance <= members)
        return ((team->me + turn) % members + members) % members;
    return members + ((team->me - members + turn) % servers + servers) % servers;
}

/* The member `distance` places after (before) the caller. */
static int member_after(const struct team *team, int distance)
{
    return member_at(team, distance, distance);
}

static int member_before(const struct team *team, int distance)
{
    return member_at(team, distance, -distance);
}

/* A reduce over a team on its way through the segments. */
struct reducing {
    struct schedule_builder *builder;
    struct team *team;
    const struct part *parts;
    struct schedule_span from, to; /* the range; where the own part's sum goes */
    uint64_t segment_count, segments;
    uint64_t slot_count, row_count, window; /* elements of a slot, of a slot per peer; rows */
    struct schedule_span slots;
    struct schedule_span *sources; /* [members with data] */
    bool final;
};

/* Scratch of at least `count` elements as wide as those to be summed; the team keeps the largest.
 */
static struct schedule_span take_slots(const struct reducing *reducing, struct team *team,
                                       uint64_t count)
{
    bool wide = reducing->from.buffer == BUFFER_WIDE;
    if (team->slots.count < count)
        team->slots = wide ? schedule_sums(reducing->builder, count)
                           : schedule_scratch(reducing->builder, count);
    return team->slots;
}

/* Takes what the caller filled in and works out the rest. */
static enum shoal_status reducing_init(struct reducing *reducing, struct team *team)
{
    uint64_t count = reducing->parts[team->me].count, segment_count = reducing->segment_count;
    int peer_count = data_count(team) - has_data(team, team->me);
    TRY(BASE_NEW_ARRAY(&reducing->sources, data_count(team), "a reduce's sources"));
    reducing->team = team;
    reducing->to.count = count;
    reducing->segments = segments_max(reducing->parts, team->size, segment_count);
    reducing->slot_count = count < segment_count ? count : segment_count;
    reducing->row_count = reducing->slot_count * (uint64_t)peer_count;
    uint64_t window = coll_segments_in(count, segment_count);
    reducing->window = window < WINDOW_SLOTS && !team->again ? window : WINDOW_SLOTS;
    reducing->slots = take_slots(reducing, team, reducing->row_count * reducing->window);
    return SHOAL_OK;
}

/* A member's place among the sources of a sum. */
static struct schedule_span *source_of(const struct reducing *reducing, int member)
{
    const struct team *team = reducing->team;
    return &reducing->sources[(member + data_count(team) - team->first) % data_count(team)];
}

/* One segment of the caller's own part: receives all peers' in slots, reduces them with its own. */
static void reduce_own_segment(const struct reducing *reducing, uint64_t segment)
{
    struct team *team = reducing->team;
    struct schedule_span own = coll_segment_of(
        coll_part_at(reducing->from, reducing->parts[team->me]), segment, reducing->segment_count);
    if (own.count == 0)
        return;
    uint64_t row = team->segments_reduced++ % reducing->window * reducing->row_count;
    for (int distance = 1; distance < team->size; distance++) {
        int member = member_before(team, distance);
        if (!has_data(team, member))
            continue;
        int slot = member < team->me ? member : member - 1;
        struct schedule_span *source = source_of(reducing, member);
        *source = coll_span_within(reducing->slots, row + reducing->slot_count * (uint64_t)slot,
                                   own.count);
        schedule_recv(reducing->builder, team->ranks[member], *source);
    }
    if (has_data(team, team->me))
        *source_of(reducing, team->me) = own;
    schedule_reduce(reducing->builder,
                    coll_segment_of(reducing->to, segment, reducing->segment_count),
                    reducing->sources, data_count(team), reducing->final);
}

static void reduce_segment(const struct reducing *reducing, uint64_t segment)
{
    const struct team *team = reducing->team;
    for (int distance = 1; distance < team->size && has_data(team, team->me); distance++) {
        int member = member_after(team, distance);
        struct schedule_span theirs = coll_part_at(reducing->from, reducing->parts[member]);
        schedule_send(reducing->builder, team->ranks[member],
                      coll_segment_of(theirs, segment, reducing->segment_count));
    }
    reduce_own_segment(reducing, segment);
}

enum shoal_status coll_team_reduce(struct schedule_builder *builder, struct team *team,
                                   const struct part *parts, struct schedule_span from,
                                   struct schedule_span to, uint64_t segment_count, bool final)
{
    struct reducing reducing = {.builder = builder,
                                .parts = parts,
                                .from = from,
                                .to = to,
                                .segment_count = segment_count,
                                .final = final};
    TRY(reducing_init(&reducing, team));
    for (uint64_t segment = 0; segment < reducing.segments; segment++)
        reduce_segment(&reducing, segment);
    base_free(reducing.sources);
    return SHOAL_OK;
}

void coll_team_share(struct schedule_builder *builder, const struct team *team,
                     const struct part *parts, struct schedule_span own, struct schedule_span into,
                     uint64_t segment_count)
{
    own.count = parts[team->me].count;
    uint64_t segments = segments_max(parts, team->size, segment_count);
    bool gets = has_data(team, team->me);
    for (uint64_t segment = 0; segment < segments; segment++) {
        for (int distance = 1; distance < team->size; distance++) {
            int to = member_after(team, distance), member = member_before(team, distance);
            if (has_data(team, to))
                schedule_send(builder, team->ranks[to],
                              coll_segment_of(own, segment, segment_count));
            if (gets)
                schedule_recv(
                    builder, team->ranks[member],
                    coll_segment_of(coll_part_at(into, parts[member]), segment, segment_count));
        }
    }
    if (gets)
        schedule_copy(builder, coll_part_at(into, parts[team->me]), own);
}

void coll_team_collect(struct schedule_builder *builder, const struct team *team,
                       const struct part *parts, int root, struct schedule_span own,
                       struct schedule_span into, uint64_t segment_count)
{
    own.count = parts[team->me].count;
    if (team->me != root) {
        coll_segments_send(builder, team->ranks[root], own, segment_count);
        return;
    }
    uint64_t segments = segments_max(parts, team->size, segment_count);
    for (uint64_t segment = 0; segment < segments; segment++)
        for (int distance = 1; distance < team->size; distance++) {
            int member = member_after(team, distance);
            schedule_recv(
                builder, team->ranks[member],
                coll_segment_of(coll_part_at(into, parts[member]), segment, segment_count));
        }
    schedule_copy(builder, coll_part_at(into, parts[team->me]), own);
}

void coll_team_deal(struct schedule_builder *builder, const struct team *team,
                    const struct part *parts, int root, struct schedule_span from,
                    struct schedule_span own, uint64_t segment_count)
{
    own.count = parts[team->me].count;
    if (team->me != root) {
        coll_segments_recv(builder, team->ranks[root], own, segment_count);
        return;
    }
    uint64_t segments = segments_max(parts, team->size, segment_count);
    for (uint64_t segment = 0; segment < segments; segment++)
        for (int distance = 1; distance < team->size; distance++) {
            int member = member_after(team, distance);
            schedule_send(
                builder, team->ranks[member],
                coll_segment_of(coll_part_at(from, parts[member]), segment, segment_count));
        }
    schedule_copy(builder, own, coll_part_at(from, parts[team->me]));
}

/* ---- whole operations ---------------------------------------------------------------------- */

enum shoal_status coll_team_allreduce(struct schedule_builder *builder, struct team *team,
                                      struct schedule_span from, struct schedule_span into,
                                      uint64_t segment_count)
{
    struct part *parts;
    TRY(BASE_NEW_ARRAY(&parts, team->size, "a team's parts"));
    coll_parts_cut(into.count, parts, team->size);
    struct schedule_span own = coll_part_at(into, parts[team->me]);
    enum shoal_status status =
        coll_team_reduce(builder, team, parts, from, own, segment_count, true);
    if (status == SHOAL_OK)
        coll_team_share(builder, team, parts, own, into, segment_count);
    base_free(parts);
    return status;
}

/* Parts of `count` elements: `own_count` for one member, at the end, and even ones for the others.
 */
static void cut_around(uint64_t count, struct part *parts, int part_count, int member,
                       uint64_t own_count)
{
    coll_parts_cut(count - own_count, parts, part_count - 1);
    for (int i = part_count - 1; i > member; i--)
        parts[i] = parts[i - 1];
    parts[member] = (struct part){count - own_count, own_count};
}

/* What the root of a reduce sums itself. With x elements its port sends count-x operands, and gets
 * (size-1)x operands and count-x results. If operands are as wide as results nothing is best, or
 * everything if there are two members; if they are twice as wide, what makes both directions equal.
 */
static uint64_t root_share(struct schedule_span from, int size)
{
    if (from.buffer == BUFFER_WIDE)
        return from.count / (2 * (uint64_t)size - 1);
    return size > 2 ? 0 : from.count;
}

/* One segment of each owner's sum goes to the root, into the range at `into`. */
static void collect_segment(const struct reducing *reducing, int root, struct schedule_span into,
                            uint64_t segment)
{
    const struct team *team = reducing->team;
    for (int distance = 1; distance < team->size; distance++) {
        int member = member_after(team, distance);
        if (team->me == root)
            schedule_recv(reducing->builder, team->ranks[member],
                          coll_segment_of(coll_part_at(into, reducing->parts[member]), segment,
                                          reducing->segment_count));
        else if (member == root)
            schedule_send(reducing->builder, team->ranks[root],
                          coll_segment_of(reducing->to, segment, reducing->segment_count));
    }
}

enum shoal_status coll_team_reduce_to(struct schedule_builder *builder, struct team *team, int root,
                                      struct schedule_span from, struct schedule_span into,
                                      uint64_t segment_count)
{
    struct part *parts;
    TRY(BASE_NEW_ARRAY(&parts, team->size, "a team's parts"));
    cut_around(from.count, parts, team->size, root, root_share(from, team->size));
    struct reducing reducing = {.builder = builder,
                                .parts = parts,
                                .from = from,
                                .to = coll_part_at(into, parts[root]),
                                .segment_count = segment_count,
                                .final = true};
    if (team->me != root)
        reducing.to = schedule_scratch(builder, parts[team->me].count);
    enum shoal_status status = reducing_init(&reducing, team);
    /* Sums leave for the root between the parts for the next ones, so its port is never idle. */
    for (uint64_t segment = 0; status == SHOAL_OK && segment < reducing.segments; segment++) {
        reduce_segment(&reducing, segment);
        collect_segment(&reducing, root, into, segment);
    }
    base_free(reducing.sources);
    base_free(parts);
    return status;
}

/* The team without its root shares the parts; `ranks` has room for them. */
static void share_without(struct schedule_builder *builder, const struct team *team, int root,
                          struct part *parts, int *ranks, struct schedule_span into,
                          uint64_t segment_count)
{
    struct team others = {.ranks = ranks, .size = team->size - 1};
    struct schedule_span own = coll_part_at(into, parts[team->me]);
    others.me = team->me < root ? team->me : team->me - 1;
    for (int i = 0; i < others.size; i++) {
        ranks[i] = team->ranks[i < root ? i : i + 1];
        parts[i] = parts[i < root ? i : i + 1];
    }
    coll_team_share(builder, &others, parts, own, into, segment_count);
}

enum shoal_status coll_team_broadcast(struct schedule_builder *builder, const struct team *team,
                                      int root, struct schedule_span from,
                                      struct schedule_span into, uint64_t segment_count)
{
    struct part *parts;
    int *ranks;
    TRY(BASE_NEW_ARRAY(&parts, team->size, "a team's parts"));
    enum shoal_status status = BASE_NEW_ARRAY(&ranks, team->size, "a team's ranks");
    if (status == SHOAL_OK) {
        cut_around(into.count, parts, team->size, root, 0);
        coll_team_deal(builder, team, parts, root, from, coll_part_at(into, parts[team->me]),
                       segment_count);
        if (team->me == root)
            schedule_copy(builder, into, from);
        else
            share_without(builder, team, root, parts, ranks, into, segment_count);
        base_free(ranks);
    }
    base_free(parts);
    return status;
}
