/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.h: who am I? Rank, size and meeting point as the launchers tell them.
 *
 * One reader per launcher, each a row in a table, asked in order: shoal run, torchrun (and anything
 * that sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI and PMIx, MPICH's and Intel MPI's
 * Hydra (PMI-1 over PMI_FD), Slurm (PMI-2 or plain variables), SageMaker's resourceconfig.json with
 * its ranks, none (a group of one).
 */
#ifndef SHOAL_BOOT_ENVIRONMENT_H
#define SHOAL_BOOT_ENVIRONMENT_H

#include <stdbool.h>

#include "net/transport.h"
#include "shoal.h"

struct boot_store_server;

struct boot_identity {
    int rank, size;
    int local_rank, local_size; /* -1: unknown */
    int server_count;           /* processes that sum for the ranks, besides `size` */
    bool is_server;             /* this is one of them: `rank` is size + its number */
    char store[512];            /* where the store is, as boot_store_connect takes it: "host:port",
                                   or several separated by commas; "" for a group of one */
    bool serve_here;            /* this process is to serve the store at that port */
    struct boot_store_server *server;       /* serves here already; the caller's to stop; or NULL */
    unsigned char secret[NET_SECRET_BYTES]; /* of the job */
    bool guessable;                         /* the secret: made from what others may know */
    unsigned char job[NET_JOB_BYTES];
    char launcher[32]; /* "shoal", "torchrun", "openmpi", "hydra", "slurm", "none", … */
};

/* Reads the environment. SHOAL_ERR_OPTION names the variable that is missing, broken or contradicts
 * another. May talk to the launcher (PMI, PMIx) to learn the store's address; then it blocks at
 * most until the deadline. `serve_here` for rank 0 where nobody serves yet. */
enum shoal_status boot_identity_read(int64_t deadline_ns, struct boot_identity *out);

/* The same of a server, which is told SHOAL_SERVER, SHOAL_SERVERS, SHOAL_SIZE and SHOAL_STORE. */
enum shoal_status boot_identity_read_server(struct boot_identity *out);

/* What `shoal run` sets for its ranks, besides RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT: SHOAL_RANK, SHOAL_SIZE, SHOAL_LOCAL_RANK, SHOAL_LOCAL_SIZE, SHOAL_STORE
 * (host:port, which may differ between hosts; the launcher serves it), SHOAL_SECRET (64 hex digits)
 * and SHOAL_LAUNCHED_BY. These win over all others. By hand the first, second and fifth will do;
 * then rank 0 serves the store. */

#endif
