/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_training.h: `shoal sim training` in parts: sim_training.c reads the arguments,
 * sim_training_read.c a training's file, sim_training_step.c simulates a step, with
 * sim_training_sums.c for what is summed, and sim_training_show.c shows it. docs/sim.md has the
 * statements of a file and what is simulated.
 */
#ifndef SHOAL_CMD_SIM_TRAINING_H
#define SHOAL_CMD_SIM_TRAINING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "model_tree.h"
#include "plan_model_pipeline.h"
#include "sim/platform.h"

#define TRAINING_WORD_BYTES 32

/* What a file says. */
struct training {
    struct model_tree tree;
    struct sim_platform *platform;
    double samples;             /* of a microbatch of the tree */
    double peak_per_ns;         /* floating point operations, at which the tree's times are */
    double achieved;            /* share of the peak */
    uint64_t memory_bytes;      /* of an accelerator; 0: not said */
    uint64_t working_bytes;     /* of it for what else there is */
    int data, pipeline, tensor; /* copies, stages, slices */
    char placement[TRAINING_WORD_BYTES];
    int kind; /* enum shoal_pipeline_kind */
    int stage_chunks, active, microbatches;
    int size;                        /* of a microbatch, in the tree's */
    int forward_sums, backward_sums; /* of a layer's output among its slices */
    int state_copies;                /* of the parameters' bytes, on each accelerator */
    int sharded_copies;              /* more of them, in shares over the copies of the model */
    bool whole_activations;          /* each slice keeps all of them */
    uint64_t buffer_bytes;           /* of gradients that are summed together */
    double published;                /* samples per second; 0: not known */
};

/* A step; times in ns. They add up to step_ns; work and sums are the busiest stage's. */
struct training_step {
    double step_ns, work_ns, sums_ns, bubble_ns, gradients_ns, update_ns, gather_ns;
    double samples_per_s;
    double done_per_ns;   /* floating point operations of an accelerator */
    double needed_per_ns; /* without those of forward passes that were done again */
    int fullest;          /* the stage that needs most memory */
    uint64_t state_bytes, sharded_bytes, activation_bytes, memory_bytes; /* there */
    struct pipeline_request request;
    struct pipeline_table pipeline; /* one row */
};

/* By name, or by path if it has a slash. SHOAL_ERR_FORMAT names file and line. Release in any case.
 */
enum shoal_status training_read(const char *name, struct training *out);
/* Whether all of it fits together; after arguments have changed some. SHOAL_ERR_ARGUMENT. */
enum shoal_status training_check(const struct training *training);
void training_release(struct training *training);
/* "20,6,8", or three words of a file. */
enum shoal_status training_set_layout(struct training *training, const char *const words[3]);
enum shoal_status training_parse_share(const char *what, const char *text, double *out);

/* Simulates a step. Release in any case. */
enum shoal_status training_simulate(const struct training *training, struct training_step *out);
void training_step_release(struct training_step *step);

/* ---- what is summed: sim_training_sums.c ---------------------------------------------------- */

/* Where ranks of a training lie. */
struct training_places {
    int group_hosts, group_each; /* hosts of the ranks that hold the same part; on each of them */
    int sharing;                 /* such groups on a host, which share its link */
    int *
        crossing; /* [pipeline] ranks of a stage's host that send to another host; 0: stays there */
};

/* SHOAL_ERR_ARGUMENT if slices are not on one host, or hosts differ. Release in any case. */
enum shoal_status training_places_init(const struct training *training,
                                       struct training_places *places);
void training_places_release(struct training_places *places);

/* A sum of so many bytes among the slices of a layer. */
enum shoal_status training_slices_ns(const struct training *training, uint64_t bytes, double *ns);

/* So many bytes of gradients become ready from begin_ns to end_ns. */
struct training_gradients {
    uint64_t bytes;
    double begin_ns, end_ns;
};
/* When all of them, in their order, are summed over the copies of the model; or only each copy's
 * share, if state is sharded. */
enum shoal_status training_gradients_ns(const struct training *training,
                                        const struct training_places *places,
                                        const struct training_gradients *gradients, int count,
                                        double *end_ns);
/* Each copy's share of parameters goes to all others. */
enum shoal_status training_gather_ns(const struct training *training,
                                     const struct training_places *places, uint64_t bytes,
                                     double *ns);

void training_print_text(const struct training *training, const struct training_step *step,
                         FILE *out);
void training_print_json(const struct training *training, const struct training_step *step,
                         FILE *out);

/* The command, with argv[0] for "training". */
int cmd_sim_training(int argc, char **argv);

#endif
