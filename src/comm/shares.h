/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.h: how large a part of a buffer each host sums, when the hosts' links differ in rate.
 *
 * In a direct allreduce of N bytes among n hosts with ranks, a host that sums the share s of the
 * buffer sends and receives (1 + (n-2) s) N. With equal shares that is 2(n-1)/n N, and takes
 * 2(n-1)/n N / b where b is the slowest link's rate. No schedule is faster than N / b, and none by
 * shares than T with sum of max(0, T b_i/N - 1) = n - 2. The longer of the two can be reached:
 * every host takes a share of at most (T b_i/N - 1)/(n-2). So with one slow link its host sums
 * little or nothing, and the gain is up to 2(n-1)/n.
 *
 * A host with servers alone that sums the share t sends and receives n t N, so it may take up to
 * T c_j/(n N) where c is its rate, and T is the least with which all shares make up the buffer:
 * 2n(n-1) N / (n sum b + (n-2) sum c), or again N / b of the slowest host with ranks. On equal
 * links that is what coll/owners.c has.
 *
 * All is done in integers, so that ranks of unlike machines come to the same shares. Nothing here
 * knows of groups or time: steer.c says when to measure, and what to do with the shares.
 */
#ifndef SHOAL_COMM_SHARES_H
#define SHOAL_COMM_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/schedule.h"
#include "shoal.h"

#define COMM_SHARES_MEMBERS_MAX 64                  /* ranks and servers */
#define COMM_SHARES_BYTES_MIN   (UINT64_C(1) << 20) /* less is over before links count for much */

/* Who is where. Hosts with ranks have the first numbers. */
struct comm_sites {
    const int *host_of; /* [member_count] of the ranks, then of the servers */
    int rank_count, member_count;
    int rank_hosts, host_count;
};

/* Whether shares can make a difference: among two hosts every share takes the same time, unless
 * there are servers. */
static inline bool comm_shares_matter(const struct comm_sites *sites)
{
    return sites->rank_hosts + (sites->host_count > sites->rank_hosts) >= 3;
}

/* What a rank reports: the time by its clock in us, then, for each member, how many bytes of its
 * flow to that one were acknowledged so far, and for how many us anything of it was on its way.
 * Servers report nothing. */
static inline int comm_shares_words(int member_count)
{
    return 1 + 2 * member_count;
}

struct comm_shares {
    struct comm_sites sites;
    bool even;       /* the shares in use are those of equal links: how all groups begin */
    bool has_begun;  /* there is a begin */
    bool asked;      /* the last measurement asked for a change */
    uint64_t *begin; /* [rank_count * words] reports when the measurement under way began */
    uint64_t *rates; /* [host_count] of links as last measured, bytes per ms; 0: not known */
    uint32_t *now;   /* [host_count] in use, in SCHEDULE_SHARES_WHOLE-ths; not if even */
    uint32_t *next;  /* [host_count] what was found best */
};

/* sites->host_of stays. At most COMM_SHARES_MEMBERS_MAX members; shares matter. */
enum shoal_status comm_shares_init(const struct comm_sites *sites, struct comm_shares *shares);
void comm_shares_release(struct comm_shares *shares);

/* The best shares for hosts with ranks and, behind them, with servers alone. Rates are above 0 and
 * at most UINT32_MAX, hosts as bounded above. */
void comm_shares_best(const uint64_t *rates, int rank_hosts, int host_count, uint32_t *best);

/* The same, and whether they save so much that the shares of equal links are left for them. */
bool comm_shares_pay(const uint64_t *rates, int rank_hosts, int host_count, uint32_t *best);

/* Takes in the reports of all ranks, one after the other. True: the shares in use have changed. A
 * measurement takes half a second at least, by rank 0's clock, and a change needs two in a row that
 * promise a clear gain from it: what a scheduler does to processes for a moment changes nothing. */
bool comm_shares_judge(struct comm_shares *shares, const uint64_t *reports);

#endif
