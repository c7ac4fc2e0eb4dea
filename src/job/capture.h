/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h: a program that is run for what it prints. */
#ifndef SHOAL_JOB_CAPTURE_H
#define SHOAL_JOB_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

#define CAPTURE_BYTES_MAX (4u << 20)

/* Runs words (looked up in PATH, NULL behind) to its end and gives what it printed on stdout, to be
 * released by base_free. Blocks for at most timeout_ms; any thread. SHOAL_ERR_SYSTEM: it can't be
 * executed, ended with an error (the text has its last words on stderr), printed too much or did
 * not end in time. SHOAL_ERR_ABORTED: *is_cancelled (NULL: nobody asks) came true meanwhile. Where
 * it was not waited for, it is ended, with all that it had started. */
enum shoal_status capture_run(char *const *words, int64_t timeout_ms,
                              const atomic_bool *is_cancelled, char **out);

#endif
