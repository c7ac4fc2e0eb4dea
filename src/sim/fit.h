/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fit.h: finds what links and processors must be like for simulated times to be measured ones.
 */
#ifndef SHOAL_SIM_FIT_H
#define SHOAL_SIM_FIT_H

#include "sim/sim.h"

/* An operation that was run. */
struct sim_sample {
    const struct sim_programs *programs; /* borrowed */
    const struct sim_programs *barrier;  /* borrowed; ranks meet in it before; NULL: they don't */
    double own_bytes; /* that each rank writes and reads by itself before the barrier */
    double measured_ns;
    double simulated_ns; /* out */
};

/* Sets the samples' simulated times, on the platform with as many hosts as each of them has. */
enum shoal_status sim_samples_run(const struct sim_platform *platform, struct sim_sample *samples,
                                  int sample_count);

/* Changes the rate and the latency of the links, the cost of messages, so that the mean
 * of |log(simulated / measured)| becomes small, which a few strange runs don't spoil (Nelder, Mead:
 * A simplex method for function minimization, 1965). Sending and receiving are taken to cost the
 * same, since only their sum shows. All else, and the number of hosts, stays. Sets the samples'
 * simulated times. */
enum shoal_status sim_fit(struct sim_platform *platform, struct sim_sample *samples,
                          int sample_count);

#endif
