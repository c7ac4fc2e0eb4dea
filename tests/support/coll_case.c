/* SPDX-License-Identifier: Apache-2.0 */
/* coll_case.c: makes the shapes of all ranks from the few words of a case. */
#include "support/coll_case.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"

bool case_has_v(enum coll_kind kind)
{
    return kind == COLL_ALLGATHER || kind == COLL_GATHER || kind == COLL_REDUCE_SCATTER ||
           kind == COLL_SCATTER || kind == COLL_ALLTOALL;
}

bool case_has_in_place(enum coll_kind kind)
{
    return kind != COLL_ALLTOALL && kind != COLL_BARRIER;
}

/* Fills host_of, hosts numbered by their first rank; returns their number. */
static int place_ranks(enum case_hosts hosts, int size, int *host_of)
{
    int host = 0, on_it = 0;
    for (int rank = 0; rank < size; rank++) {
        int room = hosts == HOSTS_ONE     ? size
                   : hosts == HOSTS_EACH  ? 1
                   : hosts == HOSTS_PAIRS ? 2
                                          : host + 1;
        if (on_it == room) {
            host++;
            on_it = 0;
        }
        on_it++;
        host_of[rank] = hosts == HOSTS_SCATTERED ? rank % 3 : host;
    }
    if (hosts == HOSTS_SCATTERED)
        return size < 3 ? size : 3;
    return host + 1;
}

static void fill_v(const struct coll_case *one, struct coll_group *group)
{
    int size = one->size;
    uint64_t unit = one->count, offset = 3;
    for (int i = 0; i < size; i++)
        group->counts[i] = (uint64_t)((i * 7 + 2) % 5) * unit / 2;
    for (int i = size - 1; i >= 0; i--) {
        group->displs[i] = offset;
        offset += group->counts[i] + (uint64_t)(i % 3);
    }
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            uint64_t count = (uint64_t)((from * 3 + to * 5) % 4) * unit / 2;
            group->table[0][from][to] = count;
            group->table[2][to][from] = count;
        }
    for (int side = 1; side < 4; side += 2)
        for (int rank = 0; rank < size; rank++) {
            offset = 1;
            for (int i = size - 1; i >= 0; i--) {
                group->table[side][rank][i] = offset;
                offset += group->table[side - 1][rank][i] + (uint64_t)(i % 2);
            }
        }
}

static void apply_v(struct coll_group *group, int rank)
{
    struct coll_shape *shape = &group->shapes[rank];
    shape->counts = group->counts;
    if (shape->kind == COLL_ALLGATHER ||
        ((shape->kind == COLL_GATHER || shape->kind == COLL_SCATTER) && rank == shape->root))
        shape->displs = group->displs;
    if (shape->kind != COLL_ALLTOALL)
        return;
    shape->counts = group->table[0][rank];
    shape->displs = group->table[1][rank];
    shape->recv_counts = group->table[2][rank];
    shape->recv_displs = group->table[3][rank];
}

static void fill_shares(struct coll_group *group, int host_count)
{
    uint32_t left = SCHEDULE_SHARES_WHOLE, each = left / (2 * (uint32_t)host_count);
    for (int i = host_count - 1; i > 0; i--) {
        group->shares[i] = i % 4 == 2 ? 0 : each * (uint32_t)(1 + i % 2);
        left -= group->shares[i];
    }
    group->shares[0] = left;
}

bool case_shapes(const struct coll_case *one, struct coll_group *group)
{
    int host_count = place_ranks(one->hosts, one->size, group->host_of);
    if (one->is_v)
        fill_v(one, group);
    if (one->has_shares)
        fill_shares(group, host_count);
    for (int rank = 0; rank < one->size; rank++) {
        group->schedules[rank] = NULL;
        group->shapes[rank] = (struct coll_shape){
            .kind = one->algorithm->kind,
            .rank = rank,
            .size = one->size,
            .root = one->root,
            .elem_bytes = one->is_half ? 2 : 4,
            .wide_sums = one->is_half,
            .count = one->is_v ? 0 : one->count,
            .in_place = one->in_place == PLACE_SAME || (one->in_place == PLACE_MIXED && rank % 2),
            .segment_count = one->segment_count,
            .host_of = group->host_of,
            .host_count = host_count,
            .server_count = one->server_count,
        };
        if (one->is_v)
            apply_v(group, rank);
        if (one->has_shares)
            group->shapes[rank].shares = group->shares;
    }
    return !one->algorithm->fits || one->algorithm->fits(&group->shapes[0]);
}

enum shoal_status case_schedules(const struct coll_case *one, struct coll_group *group)
{
    for (int rank = 0; rank < one->size; rank++)
        TRY(coll_schedule(one->algorithm, &group->shapes[rank], &group->schedules[rank]));
    return SHOAL_OK;
}

void case_release(const struct coll_case *one, struct coll_group *group)
{
    for (int rank = 0; rank < one->size; rank++)
        schedule_free(group->schedules[rank]);
}

enum shoal_status case_verify(const struct coll_case *one, bool *fits, struct coll_report *report)
{
    struct coll_group *group;
    TRY(BASE_NEW(&group, "a test's group"));
    enum shoal_status status = SHOAL_OK;
    *fits = case_shapes(one, group);
    if (*fits) {
        status = case_schedules(one, group);
        if (status == SHOAL_OK)
            status = coll_verify(group->shapes, group->schedules, report);
        case_release(one, group);
    }
    base_free(group);
    return status;
}

const char *case_text(const struct coll_case *one)
{
    static const char *const hosts[] = {"one host", "a host each", "pairs", "uneven hosts",
                                        "scattered hosts"};
    static const char *const places[] = {"apart", "in place", "mixed places"};
    static char text[256];
    snprintf(text, sizeof(text),
             "%s%s %s, %d ranks, count %llu, segment %llu, root %d, %s, %s%s%s, %d servers",
             comm_kind_name(one->algorithm->kind), one->is_v ? "v" : "", one->algorithm->name,
             one->size, (unsigned long long)one->count, (unsigned long long)one->segment_count,
             one->root, hosts[one->hosts], places[one->in_place], one->is_half ? ", halves" : "",
             one->has_shares ? ", shares" : "", one->server_count);
    return text;
}
