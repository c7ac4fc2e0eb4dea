/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h: which ranks are on which host, for the two-level algorithms. Servers are no ranks. */
#ifndef SHOAL_COLL_LAYOUT_H
#define SHOAL_COLL_LAYOUT_H

#include "comm/schedule.h"

struct layout {
    int host_count;  /* with ranks; hosts of servers alone come behind these */
    int host, local; /* of this rank: its host, its number among the host's ranks */
    int smallest;    /* ranks on the host with the fewest */
    int *ranks;      /* [ranks] by host, ascending within each */
    int *first;      /* [host_count+1] of each host in `ranks` */
};

/* Hosts that have ranks; they have the first numbers. */
int coll_layout_hosts(const struct coll_shape *shape);
/* Whether there are several of them, and several ranks on at least one. */
bool coll_layout_is_stacked(const struct coll_shape *shape);

enum shoal_status coll_layout_init(const struct coll_shape *shape, struct layout *layout);
void coll_layout_release(struct layout *layout);

static inline int coll_layout_host_size(const struct layout *layout, int host)
{
    return layout->first[host + 1] - layout->first[host];
}

static inline int coll_layout_rank(const struct layout *layout, int host, int local)
{
    return layout->ranks[layout->first[host] + local];
}

/* The host `distance` places after this rank's own. */
static inline int coll_layout_host_after(const struct layout *layout, int distance)
{
    return (layout->host + distance) % layout->host_count;
}

#endif
