/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.h: how large a part of a buffer each rank sums, when the ranks' links differ in rate.
 *
 * In a direct allreduce of n bytes among p ranks, a rank that sums the share s of the buffer sends
 * and receives (1 + (p-2) s) n. With equal shares that is 2(p-1)/p n, and takes 2(p-1)/p n / b
 * where b is the slowest link's rate. No schedule is faster than n / b, and none by shares than T
 * with sum of max(0, T b_i/n - 1) = p - 2. The longer of the two can be reached: every rank takes a
 * share of at most (T b_i/n - 1)/(p-2). So with one slow link its rank sums little or nothing, and
 * the gain is up to 2(p-1)/p.
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

#define COMM_SHARES_RANKS_MIN 3 /* among fewer, every share takes the same time */
#define COMM_SHARES_RANKS_MAX 32
#define COMM_SHARES_BYTES_MIN (UINT64_C(1) << 20) /* less is over before links count for much */

/* What a rank reports: the time by its clock in us, then, for each rank, how many bytes of its flow
 * to that one were acknowledged so far, and for how many us anything of it was on its way. */
static inline int comm_shares_words(int size)
{
    return 1 + 2 * size;
}

struct comm_shares {
    int size;
    bool even;       /* the shares in use are equal ones: how all groups begin */
    bool has_begun;  /* there is a begin */
    bool asked;      /* the last measurement asked for a change */
    uint64_t *begin; /* [size * words] reports when the measurement under way began */
    uint64_t *rates; /* [size] of the ranks' links as last measured, bytes per ms */
    uint32_t *now;   /* [size] in use, in SCHEDULE_SHARES_WHOLE-ths of the buffer; not if even */
    uint32_t *next;  /* [size] what was found best */
};

enum shoal_status comm_shares_init(int size, struct comm_shares *shares);
void comm_shares_release(struct comm_shares *shares);

/* The best shares for the rates, which are above 0 and at most UINT32_MAX. size: as bounded above.
 */
void comm_shares_best(const uint64_t *rates, int size, uint32_t *best);

/* The same, and whether they save so much that equal shares are left for them. */
bool comm_shares_pay(const uint64_t *rates, int size, uint32_t *best);

/* Takes in the reports of all ranks, one after the other. True: the shares in use have changed. A
 * measurement takes half a second at least, by rank 0's clock, and a change needs two in a row that
 * promise a clear gain from it: what a scheduler does to processes for a moment changes nothing. */
bool comm_shares_judge(struct comm_shares *shares, const uint64_t *reports);

#endif
