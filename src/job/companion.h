/* SPDX-License-Identifier: Apache-2.0 */
/*
 * companion.h: a process of this machine beside a job's instances, which the job needs for as long
 * as it runs: a subcommand of this program, such as the one that fills the pipes of Pipe mode.
 *
 * It ends with the supervisor, whichever way that ends. If it ends before, the job fails, and what
 * it last wrote to stderr is the reason.
 */
#ifndef SHOAL_JOB_COMPANION_H
#define SHOAL_JOB_COMPANION_H

#include <stdbool.h>
#include <stddef.h>

#include "launch/loop.h"
#include "launch/process.h"

#define COMPANION_WORDS_BYTES 1024

struct companion { /* zeroed: not started */
    struct launch_process process;
    const char *name;
    bool is_started, has_ended, line_has_ended;
    char words[COMPANION_WORDS_BYTES]; /* of stderr: the last line, as far as there is room */
    size_t word_bytes;
};

/* words: the subcommand and its arguments, NULL behind; borrowed. SHOAL_ERR_SYSTEM. */
enum shoal_status companion_start(struct companion *companion, char *const *words);
/* Its stderr, for the next turn of the loop. */
enum shoal_status companion_watch(struct companion *companion, struct launch_loop *loop);
bool companion_has_ended(const struct companion *companion);
/* Why it ended, as a job's reason. */
void companion_describe(const struct companion *companion, char *out, size_t capacity);
/* Kills it if it runs, and lets go. One that was not started is fine. */
void companion_end(struct companion *companion);

#endif
