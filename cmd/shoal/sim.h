/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: `shoal sim` in parts: sim.c reads the arguments, sim_scale.c simulates an operation on
 * many numbers of hosts, and the others show it.
 */
#ifndef SHOAL_CMD_SIM_H
#define SHOAL_CMD_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coll/coll.h"
#include "scaled_text.h"
#include "sim/sim.h"

#define SIM_ALGORITHMS_MAX 16

struct sim_request {
    enum coll_kind kind;
    struct sim_platform *platform;
    int *hosts; /* [host_count] numbers of hosts, rising */
    int host_count;
    uint64_t bytes;
    enum shoal_dtype dtype;
    const char *algorithms[SIM_ALGORITHMS_MAX]; /* names; "auto": as the table chooses */
    int algorithm_count;
    uint64_t segment_bytes; /* 0: by the table */
    bool reproducible, every_rank, json;
    const char *plot_path;
};

/* One algorithm on one number of hosts. */
struct sim_row {
    int hosts;
    const char *asked; /* "auto", or the algorithm's name */
    const char *algorithm;
    double time_ns, bound_ns; /* time_ns 0: there is none, and `why_not` says why */
    uint64_t messages;        /* sent by the rank that sends most */
    uint64_t events;
    bool every_rank; /* simulated one by one; else one host stood for all */
    bool exact;
    char why_not[256];
};

struct sim_table {
    const struct sim_request *request;
    struct sim_row *rows; /* [algorithm_count * host_count], by algorithm, then by hosts */
    int row_count;
};

/* Release in any case. */
enum shoal_status sim_table_fill(const struct sim_request *request, struct sim_table *table);
void sim_table_release(struct sim_table *table);

void sim_print_text(const struct sim_table *table, FILE *out);
void sim_print_json(const struct sim_table *table, FILE *out);
void sim_print_svg(const struct sim_table *table, FILE *out);

#endif
