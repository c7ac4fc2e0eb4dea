/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h: `shoal plan` in parts: plan.c reads the arguments, plan_build.c makes the schedules of
 * all ranks and what is known about them, and the others show it as text, as JSON and as a picture.
 */
#ifndef SHOAL_CMD_PLAN_H
#define SHOAL_CMD_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coll/coll.h"
#include "launch/hosts.h"
#include "scaled_text.h"
#include "sim/sim.h"

#define PLAN_RANKS_MAX 4096

struct plan_request {
    enum coll_kind kind;
    struct launch_hosts hosts; /* placed */
    int size;
    uint64_t bytes;
    enum shoal_dtype dtype;
    int root;
    const char *algorithm;  /* NULL: by the table */
    uint64_t segment_bytes; /* 0: by the table */
    bool reproducible;
    struct sim_platform *platform; /* the links; messages cost processors nothing */
    int rank;                      /* whose steps are shown; -1: nobody's */
    const char *svg_path;
    bool json, verify;
};

/* All messages of one round, were none cut in segments. */
struct plan_round {
    uint32_t messages;
    uint64_t bytes, network_bytes; /* of them between hosts */
    uint64_t most_bytes;           /* sent by one rank */
};

struct plan {
    const struct plan_request *request;
    int size;
    int *host_of; /* [size] */
    size_t elem_bytes;
    uint64_t count; /* as in coll_shape */
    uint64_t segment_count;
    const struct coll_algorithm *algorithm;
    char why[256];
    struct coll_shape *shapes;   /* [size] */
    struct schedule **schedules; /* [size] */
    uint32_t *first;             /* [size+1] of each rank's steps in `times` */
    struct sim_step_time *times;
    double predicted_ns, bound_ns;
    struct plan_round *rounds; /* [round_count] */
    uint32_t round_count;
    int place_count;      /* hosts, or ranks where there is one host */
    uint64_t *link_bytes; /* [place_count * place_count] from, to */
    bool verified;
    struct coll_report report; /* if verified */
    uint64_t verified_count;   /* with this count */
};

/* Release in any case. */
enum shoal_status plan_build(const struct plan_request *request, struct plan *plan);
void plan_release(struct plan *plan);

const char *plan_host_name(const struct plan *plan, int host);
static inline uint64_t plan_step_bytes(const struct plan *plan, const struct schedule_step *step)
{
    return schedule_span_bytes(step->at, plan->elem_bytes);
}

void plan_print_text(const struct plan *plan, FILE *out);
void plan_print_json(const struct plan *plan, FILE *out);
enum shoal_status plan_print_svg(const struct plan *plan, FILE *out);

#endif
