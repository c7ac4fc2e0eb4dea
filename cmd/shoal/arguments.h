/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments.h: the arguments of a subcommand, out of one table that also makes its help.
 */
#ifndef SHOAL_CMD_ARGUMENTS_H
#define SHOAL_CMD_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/options.h"
#include "coll/coll.h"
#include "shoal.h"

#define EXIT_USAGE 2 /* what a command exits with for wrong arguments */

struct argument {
    const char *name;  /* without "--" */
    char letter;       /* short form, 0: none */
    const char *value; /* what stands for its value in the help; NULL: it has none */
    const char *help;  /* may have several lines */
};

#define ARGUMENTS_END    (-1) /* no more options: words begin at argv[at] */
#define ARGUMENTS_OPTION (-2) /* a row of the table of options (base/options.h), --timeout-ms */

struct arguments {       /* set what is up to `at` */
    const char *command; /* "run", for messages */
    const struct argument *table;
    size_t count;
    bool with_options; /* rows of the table of options are allowed too */
    int argc;
    char **argv;
    /* What becomes of an option, for the functions that go through all. */
    enum shoal_status (*take)(void *user, int id, const char *value);
    void *user;
    int at;             /* 1 to start */
    int option;         /* the row, with ARGUMENTS_OPTION */
    const char *letter; /* inside "-abc" */
};

/* The next argument: its place in the table or one of the above, and its value (NULL if none).
 * Stops at "--" and at the first word. SHOAL_ERR_ARGUMENT for an unknown one, with the nearest
 * name, and for one that lacks a value or may not have one. */
enum shoal_status arguments_next(struct arguments *arguments, int *id, const char **value);
/* Takes all options up to the next word or the end. */
enum shoal_status arguments_take(struct arguments *arguments);
/* The same of a command that takes no words: one is SHOAL_ERR_ARGUMENT. */
enum shoal_status arguments_take_all(struct arguments *arguments);
/* The same of a command with one word, before, between or behind the options: the operation, left
 * NULL if there is none. SHOAL_ERR_ARGUMENT for a second one. */
enum shoal_status arguments_take_with_operation(struct arguments *arguments,
                                                const char **operation);
/* What a command exits with: 0, or prints the last error and gives EXIT_USAGE for wrong
 * arguments, else 1. */
int arguments_exit(const char *command, enum shoal_status status);
/* Prints the table. */
void arguments_help(const struct argument *table, size_t count, FILE *out);

/* A whole number within [minimum, maximum]; `name` is for the error. */
enum shoal_status argument_number(const char *name, const char *text, long minimum, long maximum,
                                  long *out);
/* The next number of a list with commas; *list becomes what follows, NULL after the last. */
enum shoal_status argument_list_number(const char *name, const char **list, long minimum,
                                       long maximum, long *out);
/* Seconds, fractions allowed, 0 to a year, as ms. */
enum shoal_status argument_seconds(const char *name, const char *text, int64_t *ms);
/* "allreduce" to "barrier". */
enum shoal_status argument_operation(const char *word, enum coll_kind *out);
/* "f32", … */
enum shoal_status argument_dtype(const char *word, enum shoal_dtype *out);
/* 4096, 64K, 4M, 1G. */
enum shoal_status argument_bytes(const char *name, const char *text, uint64_t *out);
/* The same, within what the row of the table of options takes. */
enum shoal_status argument_option_bytes(const char *name, const char *text, enum base_option_id row,
                                        uint64_t *out);

#endif
