/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_command.h: which command trains: the script itself, or Shoal's launcher with the script as
 * the ranks of all instances of a distribution.
 */
#ifndef SHOAL_JOB_START_COMMAND_H
#define SHOAL_JOB_START_COMMAND_H

#include <jansson.h>

#include "job/start_facts.h"

enum start_entry {
    START_SCRIPT,  /* python train.py */
    START_PACKAGE, /* a folder with setup.py: installed, python -m train */
    START_SHELL    /* ./train.sh */
};

/* What the entry point in a folder of code is. */
enum start_entry start_entry_find(const char *folder, const char *program);

struct start_command {  /* zeroed to start */
    json_t *words;      /* what is executed */
    json_t *shown;      /* the script's part of it, for messages */
    json_t *background; /* a program that runs beside it on this instance, and ends with it; NULL */
    const char *way;    /* "mpi", "smddp", ...; NULL: one process, without a launcher */
};

/* `python`: the interpreter. Adds what ranks need to `variables`. The launcher's hosts are written
 * to `resource_config`, a path. SHOAL_ERR_ARGUMENT: what can't be started in this way. */
enum shoal_status start_command_make(const struct start_facts *facts, enum start_entry entry,
                                     const char *python, const char *resource_config,
                                     json_t *variables, struct start_command *out);
void start_command_release(struct start_command *command);

/* Variables of Open MPI's that scripts read, out of a rank's own; in the rank's process. */
void start_rank_variables(void);

#endif
