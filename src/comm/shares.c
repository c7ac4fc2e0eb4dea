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

#define WINDOW_US      500000
#define FLOW_BYTES_MIN (256 << 10) /* less has not filled a link */
#define FLOW_BUSY_US   500

enum shoal_status comm_shares_init(int size, struct comm_shares *shares)
{
    BASE_ASSERT(size >= COMM_SHARES_RANKS_MIN && size <= COMM_SHARES_RANKS_MAX);
    int words = size * comm_shares_words(size);
    *shares = (struct comm_shares){.size = size, .even = true};
    TRY(BASE_NEW_ARRAY(&shares->begin, words + size, "the rates of links"));
    enum shoal_status status = BASE_NEW_ARRAY(&shares->now, 2 * size, "shares of buffers");
    if (status != SHOAL_OK) {
        base_free(shares->begin);
        shares->begin = NULL;
        return status;
    }
    shares->rates = shares->begin + words;
    shares->next = shares->now + size;
    return SHOAL_OK;
}

void comm_shares_release(struct comm_shares *shares)
{
    base_free(shares->begin);
    base_free(shares->now);
}

/* ---- the best shares ----------------------------------------------------------------------- */

/* What each rank may sum within the least time T, which is
 *   (2p - 2) n / (b_1 + ... + b_p), all links full to the end, if every rank has a share then;
 *   n / b of the slowest link, if that is longer: its rank sums nothing, and the others have room.
 */
static void find_room(const uint64_t *rates, int size, uint64_t *room)
{
    uint64_t others = (uint64_t)size - 2, sum = 0, slowest = rates[0];
    for (int i = 0; i < size; i++) {
        sum += rates[i];
        slowest = rates[i] < slowest ? rates[i] : slowest;
    }
    uint64_t loads = 2 * ((uint64_t)size - 1);
    bool all_full = loads * slowest >= sum;
    for (int i = 0; i < size; i++) {
        room[i] = all_full ? (loads * rates[i] - sum) * WHOLE / (sum * others)
                           : (rates[i] - slowest) * WHOLE / (slowest * others);
        room[i] = room[i] < WHOLE ? room[i] : WHOLE;
    }
}

/* Whoever has less room than an even part of what is left takes all of it, until nobody has; the
 * rest share evenly. */
void comm_shares_best(const uint64_t *rates, int size, uint32_t *best)
{
    uint64_t room[COMM_SHARES_RANKS_MAX], left = WHOLE;
    bool has_all[COMM_SHARES_RANKS_MAX] = {false};
    int open = size;
    find_room(rates, size, room);
    for (bool changed = true; changed && open > 1;) {
        changed = false;
        for (int i = 0; i < size && open > 1; i++)
            if (!has_all[i] && room[i] * (uint64_t)open < left) {
                has_all[i] = changed = true;
                best[i] = (uint32_t)room[i];
                left -= room[i];
                open--;
            }
    }
    for (int i = 0; i < size; i++)
        if (!has_all[i]) {
            best[i] = (uint32_t)(left / (uint64_t)open--);
            left -= best[i];
        }
}

/* ---- when to change ------------------------------------------------------------------------ */

/* What an allreduce takes by these shares (NULL: equal ones), in a unit of its own. */
static uint64_t time_of(const uint64_t *rates, int size, const uint32_t *parts)
{
    uint64_t longest = 0, others = (uint64_t)size - 2;
    for (int i = 0; i < size; i++) {
        uint64_t part = parts ? parts[i] : WHOLE / (uint64_t)size;
        uint64_t time = ((WHOLE + others * part) << 32) / rates[i];
        if (time > longest)
            longest = time;
    }
    return longest;
}

static bool saves(uint64_t before, uint64_t after, uint64_t percent)
{
    return before * 100 > after * (100 + percent);
}

bool comm_shares_pay(const uint64_t *rates, int size, uint32_t *best)
{
    comm_shares_best(rates, size, best);
    return saves(time_of(rates, size, NULL), time_of(rates, size, best), GAIN_FIRST);
}

/* The flows of a rank in one direction. */
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
 * end; and no faster than its slower direction. But where a rank has only one flow in a direction,
 * as in a ring, a slow one says nothing, and the other direction stands for both. Flows that share
 * a link at a time divide its rate among them; that they do so on all links alike leaves the
 * relation of the links, which is all that shares depend on. */
static uint64_t rate_of(struct direction out, struct direction in)
{
    bool slower = out.known > 1 && in.known > 1;
    uint64_t rate = (out.fastest < in.fastest) == slower ? out.fastest : in.fastest;
    return rate < UINT32_MAX ? rate : UINT32_MAX;
}

/* Bytes per ms from rank to rank since the measurement began; 0: not known. */
static uint64_t flow_of(const struct comm_shares *shares, const uint64_t *reports, int from, int to)
{
    int at = from * comm_shares_words(shares->size) + 1 + 2 * to;
    uint64_t bytes = reports[at] - shares->begin[at];
    uint64_t busy_us = reports[at + 1] - shares->begin[at + 1];
    return bytes < FLOW_BYTES_MIN || busy_us < FLOW_BUSY_US ? 0 : bytes * 1000 / busy_us;
}

static bool find_rates(struct comm_shares *shares, const uint64_t *reports)
{
    for (int rank = 0; rank < shares->size; rank++) {
        struct direction out = {0}, in = {0};
        for (int peer = 0; peer < shares->size; peer++) {
            count_flow(&out, flow_of(shares, reports, rank, peer));
            count_flow(&in, flow_of(shares, reports, peer, rank));
        }
        if (out.known == 0 || in.known == 0)
            return false;
        shares->rates[rank] = rate_of(out, in);
    }
    return true;
}

/* Whether what was measured asks for other shares than those in use, which are unequal: for `next`,
 * or equal ones if *even. */
static bool asks_again(const struct comm_shares *shares, bool *even)
{
    uint64_t best = time_of(shares->rates, shares->size, shares->next);
    *even = !saves(time_of(shares->rates, shares->size, NULL), best, GAIN_BACK);
    return *even || saves(time_of(shares->rates, shares->size, shares->now), best, GAIN_AGAIN);
}

/* Whether reports end a measurement; they begin the next one then. */
static bool measure(struct comm_shares *shares, const uint64_t *reports)
{
    if (shares->has_begun && reports[0] - shares->begin[0] < WINDOW_US)
        return false;
    bool measured = shares->has_begun && find_rates(shares, reports);
    memcpy(shares->begin, reports,
           sizeof(*reports) * (size_t)(shares->size * comm_shares_words(shares->size)));
    shares->has_begun = true;
    return measured;
}

bool comm_shares_judge(struct comm_shares *shares, const uint64_t *reports)
{
    if (!measure(shares, reports))
        return false;
    bool even = false, asked = shares->asked;
    bool pays = comm_shares_pay(shares->rates, shares->size, shares->next);
    shares->asked = shares->even ? pays : asks_again(shares, &even);
    if (!shares->asked || !asked)
        return false;
    shares->asked = false;
    shares->even = even;
    memcpy(shares->now, shares->next, sizeof(*shares->now) * (size_t)shares->size);
    return true;
}
