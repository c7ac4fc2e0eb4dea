/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c: from measured rates to the shares of a buffer, and when to change them. */
#include "comm/shares.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define WHOLE ((uint64_t)SCHEDULE_SHARES_WHOLE)

/* What a change must promise to save, in percent of the time after it. */
#define GAIN_FIRST 25 /* of equal shares: they are left for much, */
#define GAIN_BACK  10 /* and come back where others gain less than this */
#define GAIN_AGAIN 15 /* from unequal shares to others */

#define ROUNDED 512 /* a server's share may be longer by this part of it */

#define WINDOW_US      500000
#define FLOW_BYTES_MIN (256 << 10) /* less has not filled a link */
#define FLOW_BUSY_US   500

enum shoal_status comm_shares_init(const struct comm_sites *sites, struct comm_shares *shares)
{
    BASE_ASSERT(comm_shares_matter(sites) && sites->member_count <= COMM_SHARES_MEMBERS_MAX);
    int words = sites->rank_count * comm_shares_words(sites->member_count);
    int hosts = sites->host_count;
    *shares = (struct comm_shares){.sites = *sites, .even = true};
    TRY(BASE_NEW_ARRAY(&shares->begin, words + hosts, "the rates of links"));
    enum shoal_status status = BASE_NEW_ARRAY(&shares->now, 2 * hosts, "shares of buffers");
    if (status != SHOAL_OK) {
        base_free(shares->begin);
        shares->begin = NULL;
        return status;
    }
    shares->rates = shares->begin + words;
    shares->next = shares->now + hosts;
    return SHOAL_OK;
}

void comm_shares_release(struct comm_shares *shares)
{
    base_free(shares->begin);
    base_free(shares->now);
}

/* ---- the best shares ----------------------------------------------------------------------- */

/* What each host may sum within the least time T, which is
 *   2n(n-1) N / (n sum b + (n-2) sum c), all links full to the end, if every rank has a share then;
 *   N / b of the slowest link of ranks, if that is longer: these ranks sum nothing, and there is
 *   room to spare. Among two hosts with ranks it is that always, whatever they sum.
 */
static void find_room(const uint64_t *rates, int rank_hosts, int host_count, uint64_t *room)
{
    uint64_t n = (uint64_t)rank_hosts, sum = 0, slowest = rates[0];
    for (int i = 0; i < host_count; i++)
        sum += rates[i] * (i < rank_hosts ? n : n - 2);
    for (int i = 0; i < rank_hosts; i++)
        slowest = rates[i] < slowest ? rates[i] : slowest;
    uint64_t loads = 2 * n * (n - 1);
    bool all_full = n > 2 && loads * slowest >= sum;
    for (int i = 0; i < host_count; i++) {
        if (i >= rank_hosts)
            room[i] =
                all_full ? 2 * (n - 1) * rates[i] * WHOLE / sum : rates[i] * WHOLE / (slowest * n);
        else if (n == 2)
            room[i] = WHOLE;
        else
            room[i] = all_full ? (loads * rates[i] - sum) * WHOLE / (sum * (n - 2))
                               : (rates[i] - slowest) * WHOLE / (slowest * (n - 2));
        room[i] = room[i] < WHOLE ? room[i] : WHOLE;
    }
}

/* Hosts first to end - 1 take of what is left. Whoever has less room than an even part takes all of
 * it, until nobody has; the rest share evenly. Of those who must take everything the last one does
 * so, room or not. */
static void fill(const uint64_t *room, int first, int end, bool must, uint64_t *left,
                 uint32_t *best)
{
    bool has_all[COMM_SHARES_MEMBERS_MAX] = {false};
    int open = end - first;
    for (bool changed = true; changed && open > must;) {
        changed = false;
        for (int i = first; i < end && open > must; i++)
            if (!has_all[i] && room[i] * (uint64_t)open < *left) {
                has_all[i] = changed = true;
                best[i] = (uint32_t)room[i];
                *left -= room[i];
                open--;
            }
    }
    for (int i = first; i < end; i++)
        if (!has_all[i]) {
            best[i] = (uint32_t)(*left / (uint64_t)open--);
            *left -= best[i];
        }
}

/* Where there is room to spare, ranks sum only what servers can't. */
void comm_shares_best(const uint64_t *rates, int rank_hosts, int host_count, uint32_t *best)
{
    uint64_t room[COMM_SHARES_MEMBERS_MAX], left = WHOLE;
    find_room(rates, rank_hosts, host_count, room);
    for (int i = rank_hosts; i < host_count; i++)
        room[i] += room[i] / ROUNDED; /* a rank would get what rounding leaves */
    fill(room, rank_hosts, host_count, false, &left, best);
    fill(room, 0, rank_hosts, true, &left, best);
}

/* ---- when to change ------------------------------------------------------------------------ */

/* What an allreduce takes by these shares, in a unit of its own. */
static uint64_t time_of(const uint64_t *rates, int rank_hosts, int host_count,
                        const uint32_t *parts)
{
    uint64_t longest = 0, n = (uint64_t)rank_hosts;
    for (int i = 0; i < host_count; i++) {
        uint64_t load = i < rank_hosts ? WHOLE + (n - 2) * parts[i] : n * parts[i];
        uint64_t time = (load << 32) / rates[i];
        if (time > longest)
            longest = time;
    }
    return longest;
}

static bool saves(uint64_t before, uint64_t after, uint64_t percent)
{
    return before * 100 > after * (100 + percent);
}

static void fill_equal(int rank_hosts, int host_count, uint32_t *shares)
{
    uint64_t alike[COMM_SHARES_MEMBERS_MAX];
    for (int i = 0; i < host_count; i++)
        alike[i] = 1;
    comm_shares_best(alike, rank_hosts, host_count, shares);
}

bool comm_shares_pay(const uint64_t *rates, int rank_hosts, int host_count, uint32_t *best)
{
    uint32_t equal[COMM_SHARES_MEMBERS_MAX];
    fill_equal(rank_hosts, host_count, equal);
    comm_shares_best(rates, rank_hosts, host_count, best);
    return saves(time_of(rates, rank_hosts, host_count, equal),
                 time_of(rates, rank_hosts, host_count, best), GAIN_FIRST);
}

/* The flows of a host in one direction. */
struct direction {
    uint64_t fastest;
    int known;
};

static void count_flow(struct direction *direction, uint64_t rate)
{
    direction->known += rate > 0;
    if (rate > direction->fastest)
        direction->fastest = rate;
}

/* A link is as fast as the fastest flow on it, since a slow one may have its cause at the other
 * end; and no faster than its slower direction. But where a host has only one flow in a direction,
 * as in a ring, a slow one says nothing, and the other direction stands for both, as it does where
 * nothing is known of one. Flows that share a link at a time divide its rate among them; that they
 * do so on all links alike leaves the relation of the links, which is all that shares depend on. */
static uint64_t rate_of(struct direction out, struct direction in)
{
    bool slower = out.known > 1 && in.known > 1;
    uint64_t rate = (out.fastest < in.fastest) == slower ? out.fastest : in.fastest;
    return rate < UINT32_MAX ? rate : UINT32_MAX;
}

/* Bytes per ms from member to member since the measurement began; 0: not known. */
static uint64_t flow_of(const struct comm_shares *shares, const uint64_t *reports, int from, int to)
{
    int at = from * comm_shares_words(shares->sites.member_count) + 1 + 2 * to;
    uint64_t bytes = reports[at] - shares->begin[at];
    uint64_t busy_us = reports[at + 1] - shares->begin[at + 1];
    return bytes < FLOW_BYTES_MIN || busy_us < FLOW_BUSY_US ? 0 : bytes * 1000 / busy_us;
}

/* The fastest flow from host to host. */
static uint64_t flow_of_hosts(const struct comm_shares *shares, const uint64_t *reports, int from,
                              int to)
{
    const struct comm_sites *sites = &shares->sites;
    uint64_t fastest = 0;
    for (int rank = 0; rank < sites->rank_count; rank++)
        for (int peer = 0; peer < sites->member_count && sites->host_of[rank] == from; peer++) {
            if (sites->host_of[peer] != to)
                continue;
            uint64_t rate = flow_of(shares, reports, rank, peer);
            fastest = rate > fastest ? rate : fastest;
        }
    return fastest;
}

/* A host whose share is too small for a measurement keeps its rate, so that the others are still
 * followed. */
static bool find_rates(struct comm_shares *shares, const uint64_t *reports)
{
    int host_count = shares->sites.host_count;
    for (int host = 0; host < host_count; host++) {
        struct direction out = {0}, in = {0};
        for (int peer = 0; peer < host_count; peer++) {
            if (peer == host)
                continue;
            count_flow(&out, flow_of_hosts(shares, reports, host, peer));
            count_flow(&in, flow_of_hosts(shares, reports, peer, host));
        }
        if (out.known + in.known > 0)
            shares->rates[host] = rate_of(out, in);
        else if (shares->rates[host] == 0)
            return false;
    }
    return true;
}

/* Whether what was measured asks for other shares than those in use, which are unequal: for `next`,
 * or equal ones if *even. */
static bool asks_again(const struct comm_shares *shares, bool *even)
{
    const struct comm_sites *sites = &shares->sites;
    uint32_t equal[COMM_SHARES_MEMBERS_MAX];
    fill_equal(sites->rank_hosts, sites->host_count, equal);
    const uint32_t *parts[] = {equal, shares->now, shares->next};
    uint64_t times[3];
    for (int i = 0; i < 3; i++)
        times[i] = time_of(shares->rates, sites->rank_hosts, sites->host_count, parts[i]);
    *even = !saves(times[0], times[2], GAIN_BACK);
    return *even || saves(times[1], times[2], GAIN_AGAIN);
}

/* Whether reports end a measurement; they begin the next one then. */
static bool measure(struct comm_shares *shares, const uint64_t *reports)
{
    if (shares->has_begun && reports[0] - shares->begin[0] < WINDOW_US)
        return false;
    bool measured = shares->has_begun && find_rates(shares, reports);
    memcpy(shares->begin, reports,
           sizeof(*reports) *
               (size_t)(shares->sites.rank_count * comm_shares_words(shares->sites.member_count)));
    shares->has_begun = true;
    return measured;
}

bool comm_shares_judge(struct comm_shares *shares, const uint64_t *reports)
{
    if (!measure(shares, reports))
        return false;
    bool even = false, asked = shares->asked;
    bool pays = comm_shares_pay(shares->rates, shares->sites.rank_hosts, shares->sites.host_count,
                                shares->next);
    shares->asked = shares->even ? pays : asks_again(shares, &even);
    if (!shares->asked || !asked)
        return false;
    shares->asked = false;
    shares->even = even;
    memcpy(shares->now, shares->next, sizeof(*shares->now) * (size_t)shares->sites.host_count);
    return true;
}
