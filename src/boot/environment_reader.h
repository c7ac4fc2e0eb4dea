/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment_reader.h: what the readers of environment.c are made of: one struct boot_reader per
 * launcher, each in a file of its own, and the few things that all of them need.
 */
#ifndef SHOAL_BOOT_ENVIRONMENT_READER_H
#define SHOAL_BOOT_ENVIRONMENT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/environment.h"
#include "shoal.h"

struct boot_reader {
    const char *launcher;
    /* Whether this launcher started the process, as far as variables tell. */
    bool (*applies)(void);
    /* Fills in rank, size, and local_rank and local_size where known (-1 otherwise); and the store,
     * serve_here, server and the secret by one of the calls below. */
    enum shoal_status (*read)(int64_t deadline_ns, struct boot_identity *identity);
};

extern const struct boot_reader boot_reader_pmix;      /* Open MPI 5, srun --mpi=pmix */
extern const struct boot_reader boot_reader_openmpi;   /* Open MPI without PMIx at hand */
extern const struct boot_reader boot_reader_pmi;       /* Hydra, srun --mpi=pmi2 */
extern const struct boot_reader boot_reader_slurm;     /* srun, by its variables */
extern const struct boot_reader boot_reader_sagemaker; /* resourceconfig.json */

/* A variable's value, NULL if it is unset or empty. */
const char *boot_variable(const char *name);
/* A variable that must be a number in the range; OPTION names it. */
enum shoal_status boot_variable_int(const char *name, int minimum, int maximum, int *out);
/* As that, but -1 if it is unset. */
enum shoal_status boot_variable_int_optional(const char *name, int minimum, int maximum, int *out);

/* The store is at host:port, or one of the next ports, served by rank 0. SHOAL_STORE wins over
 * both, and SHOAL_SECRET over `weak_secret`, which all ranks derive from what the launcher told
 * each of them: it keeps jobs apart but is no protection. */
enum shoal_status boot_identity_place(struct boot_identity *identity, const char *host, int port,
                                      const char *weak_secret);
/* True if the user says by SHOAL_STORE where to meet, so that no exchange is needed; then
 * boot_identity_place with host NULL fills in. */
bool boot_identity_is_placed(void);

/* For launchers that carry a text from rank 0 to all: rank 0 serves a store at a free port until
 * the process ends, and makes the text (addresses and a random secret); the others read it. Once
 * per process: later groups meet at the same store. */
#define BOOT_CARD_BYTES 640
enum shoal_status boot_identity_make_card(struct boot_identity *identity,
                                          char card[BOOT_CARD_BYTES]);
enum shoal_status boot_identity_take_card(struct boot_identity *identity, const char *card);

/* A port for a job, the same on all its ranks: from 10000 to 29999, below those that the kernel
 * gives out. */
int boot_port_from_text(const char *text);

#endif
