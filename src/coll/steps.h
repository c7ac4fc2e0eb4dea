/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.h: the schedules of all ranks as one set of steps, numbered through, rank by rank, each
 * send paired with its receive: what the verifier and the prediction run on.
 */
#ifndef SHOAL_COLL_STEPS_H
#define SHOAL_COLL_STEPS_H

#include <stdint.h>

#include "comm/schedule.h"

#define STEPS_NONE UINT32_MAX

struct steps {
    int size;
    struct schedule *const *schedules; /* [size], borrowed */
    uint32_t *first;                   /* [size+1] number of each rank's first step */
    uint32_t count;
    int *rank_of;      /* [count] */
    uint32_t *partner; /* [count] the other end of a message; STEPS_NONE for other steps */
};

/* Numbers the steps; SHOAL_ERR_LIMIT if they are too many. Release in any case. */
enum shoal_status coll_steps_init(struct schedule *const *schedules, int size, struct steps *steps);
/* Pairs sends with receives. SHOAL_ERR_INTERNAL if one has no other end, or one of another length.
 */
enum shoal_status coll_steps_pair(struct steps *steps);
void coll_steps_release(struct steps *steps);

static inline const struct schedule_step *coll_steps_at(const struct steps *steps, uint32_t number)
{
    int rank = steps->rank_of[number];
    return &steps->schedules[rank]->steps[number - steps->first[rank]];
}

/* Number of the i-th step that waits for step `number`. */
static inline uint32_t coll_steps_after(const struct steps *steps, uint32_t number, uint32_t i)
{
    int rank = steps->rank_of[number];
    const struct schedule *schedule = steps->schedules[rank];
    return steps->first[rank] + schedule->edges[coll_steps_at(steps, number)->after_first + i];
}

/* "rank 1 step 7 (recv of 4 elements from rank 2, output+8)". Two texts of a thread are valid at a
 * time. */
const char *coll_steps_text(const struct steps *steps, uint32_t number);

#endif
