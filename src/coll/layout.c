/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c: sorts the ranks by host. */
#include "coll/layout.h"

#include "base/memory.h"
#include "base/status.h"

int coll_layout_hosts(const struct coll_shape *shape)
{
    int count = 0;
    for (int rank = 0; rank < schedule_rank_count(shape); rank++)
        if (shape->host_of[rank] >= count)
            count = shape->host_of[rank] + 1;
    return count;
}

bool coll_layout_is_stacked(const struct coll_shape *shape)
{
    int hosts = coll_layout_hosts(shape);
    return hosts > 1 && hosts < schedule_rank_count(shape);
}

static void sort_ranks(const struct coll_shape *shape, struct layout *layout)
{
    int rank_count = schedule_rank_count(shape);
    for (int rank = 0; rank < rank_count; rank++)
        layout->first[shape->host_of[rank] + 1]++;
    for (int host = 0; host < layout->host_count; host++)
        layout->first[host + 1] += layout->first[host];
    for (int host = 0; host < layout->host_count; host++) {
        int next = layout->first[host];
        for (int rank = 0; rank < rank_count; rank++) {
            if (shape->host_of[rank] != host)
                continue;
            if (rank == shape->rank)
                layout->local = next - layout->first[host];
            layout->ranks[next++] = rank;
        }
        int host_size = next - layout->first[host];
        if (host_size < layout->smallest)
            layout->smallest = host_size;
    }
}

enum shoal_status coll_layout_init(const struct coll_shape *shape, struct layout *layout)
{
    *layout = (struct layout){.host_count = coll_layout_hosts(shape),
                              .host = shape->host_of[shape->rank],
                              .smallest = shape->size};
    enum shoal_status status = BASE_NEW_ARRAY(&layout->ranks, shape->size, "the ranks by host");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&layout->first, layout->host_count + 1, "the ranks by host");
    if (status != SHOAL_OK) {
        coll_layout_release(layout);
        return status;
    }
    sort_ranks(shape, layout);
    return SHOAL_OK;
}

void coll_layout_release(struct layout *layout)
{
    base_free(layout->ranks);
    base_free(layout->first);
    layout->ranks = layout->first = NULL;
}
