/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: `shoal sim` in parts: sim.c reads the arguments, sim_scale.c simulates an operation on
 * many numbers of hosts, sim_step.c the steps of a training, and the others show it.
 */
#ifndef SHOAL_CMD_SIM_H
#define SHOAL_CMD_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coll/coll.h"
#include "model.h"
#include "scaled_text.h"
#include "sim/sim.h"

#define SIM_ALGORITHMS_MAX  16
#define SIM_SERVERS_AS_MANY (-1)

struct sim_request {
    enum coll_kind kind;
    struct sim_platform *platform;
    int *hosts; /* [host_count] numbers of hosts, rising */
    int host_count;
    int servers; /* SIM_SERVERS_AS_MANY: as hosts */
    uint64_t bytes;
    enum shoal_dtype dtype;
    const char *algorithms[SIM_ALGORITHMS_MAX]; /* names; "auto": as the table chooses */
    int algorithm_count;
    uint64_t segment_bytes; /* 0: by the table */
    bool equal_shares;      /* even where ranks would follow the rates of their links */
    bool reproducible, every_rank, json;
    const char *plot_path;
    const char *model_name; /* NULL: an operation, no training */
    struct model model;
    double compute_ns;     /* of a step: forward and backward pass */
    uint64_t buffer_bytes; /* fusion buffers */
    int in_flight;         /* so many of them at a time */
};

/* One algorithm on one number of hosts. */
struct sim_row {
    int hosts;
    const char *asked; /* "auto", or the algorithm's name */
    const char *algorithm;
    double time_ns, bound_ns; /* time_ns 0: there is none, and `why_not` says why */
    double alone_ns;          /* of a step: its communication without the computing */
    double overlapped_ns;     /* of a step whose results are waited for one by one */
    int servers;              /* that take part */
    bool follows_links;       /* by unequal shares */
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

/* What the ranks of a number of hosts do. */
struct sim_scene {
    const struct sim_request *request;
    struct sim_platform *platform; /* the request's, with so many hosts */
    struct coll_shape shape;
    int *host_of;     /* [hosts * ranks + servers] */
    uint32_t *shares; /* of hosts, with room for as many */
    int server_count;
};

/* So many hosts of the request's platform, whose size it sets. Release in any case. */
enum shoal_status sim_scene_init(const struct sim_request *request, int hosts,
                                 struct sim_scene *scene);
void sim_scene_release(struct sim_scene *scene);
/* Gives the shape's count: a buffer of so many bytes, or so many of all blocks together. Counts are
 * rounded up to equal shares, so that all ranks do the same. Servers take part as the library lets
 * them. */
void sim_scene_count(struct sim_scene *scene, uint64_t bytes);
/* The programs of the algorithm that was asked for, or that the table chooses, which the row then
 * names; SHOAL_ERR_ARGUMENT: it cannot. */
enum shoal_status sim_scene_programs(struct sim_scene *scene, struct sim_row *row,
                                     struct sim_programs **out);
/* A ring among a host's accelerators before the hosts' allreduce, or one after it. */
double sim_scene_accelerators_ns(const struct sim_scene *scene);

/* Simulates a step of training; fills all of the row but hosts and `asked`. */
enum shoal_status sim_step_simulate(struct sim_scene *scene, struct sim_row *row);

/* Release in any case. */
enum shoal_status sim_table_fill(const struct sim_request *request, struct sim_table *table);
void sim_table_release(struct sim_table *table);

/* Prints each run of a file of `shoal bench --json` beside its simulated time, then the platform;
 * fits: after it was fitted to them. */
enum shoal_status sim_calibrate(struct sim_platform *platform, const char *path, bool fits);

/* ", 4 servers", or nothing; and "100 MB". For the heads of tables and pictures. */
const char *sim_servers_text(const struct sim_request *request);
const char *sim_bytes_text(uint64_t bytes);
void sim_print_text(const struct sim_table *table, FILE *out);
void sim_print_json(const struct sim_table *table, FILE *out);
void sim_print_svg(const struct sim_table *table, FILE *out);

#endif
