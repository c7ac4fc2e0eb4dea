/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulation.h: one job, drawn from a seed, over the simulated network: ranks, groups, operations
 * and messages, the network, slow ranks, ranks that leave when they are done, and a fault. It runs
 * in virtual time and judges what came of it.
 */
#ifndef SHOAL_TESTS_SIMULATION_H
#define SHOAL_TESTS_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the judged jobs came to, in all. */
struct simulation_tally {
    uint64_t jobs, operations, messages, good_ends, errors;
    uint64_t faults[8]; /* by kind */
};

/* Runs the job of that seed. False: *text says what was wrong with it. */
bool simulation_run(uint64_t seed, struct simulation_tally *tally, char *text, size_t text_bytes);

#endif
