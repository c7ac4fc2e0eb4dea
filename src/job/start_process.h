/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_process.h: the program of an instance, run by `shoal job-start` and heard to its end.
 */
#ifndef SHOAL_JOB_START_PROCESS_H
#define SHOAL_JOB_START_PROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

#define START_TAIL_BYTES 4096

struct start_tail { /* what a program printed last; zeroed to start */
    char text[START_TAIL_BYTES];
    size_t bytes;
};

/* Texts of a list, or "NAME=VALUE" of an object, NULL behind, to be released by base_free; the
 * texts of an object by start_list_free. */
enum shoal_status start_list_words(const json_t *words, char ***out);
enum shoal_status start_list_variables(const json_t *variables, char ***out);
void start_list_free(char **list);

/* Runs words to their end. stdout and stderr are one stream, so that their order stays, and go to
 * our stdout; the last of it is kept in `tail`. SIGTERM and the signals of a terminal are passed
 * on. *exit_code is as a shell's. SHOAL_ERR_SYSTEM when it can't be started. */
enum shoal_status start_process_run(const json_t *words, const json_t *variables,
                                    const char *directory, struct start_tail *tail, int *exit_code);

/* Starts words beside others, with our output; they end with this process. -1: it can't be. */
int start_process_begin(const json_t *words, const json_t *variables, const char *directory);

/* The last lines of it, whole ones where there are some, of at most `bytes_max` bytes. */
const char *start_tail_lines(struct start_tail *tail, size_t bytes_max);

#endif
