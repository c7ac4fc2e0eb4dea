/* SPDX-License-Identifier: Apache-2.0 */
/* survey.h: is the program there, and can it be executed? Asked before anything is started. */
#ifndef SHOAL_LAUNCH_SURVEY_H
#define SHOAL_LAUNCH_SURVEY_H

#include <stddef.h>

#include "shoal.h"

#define LAUNCH_OWN_PROGRAM "/proc/self/exe" /* of an agent: shoal */

/* Finds what execvp would execute for `name` in `directory` with the given PATH. path: the file.
 * SHOAL_ERR_ARGUMENT with a text and *exit_code 126 (cannot be executed), 127 (not there) or 125
 * (no such directory). */
enum shoal_status launch_program_find(const char *directory, const char *name,
                                      const char *search_path, char *path, size_t capacity,
                                      int *exit_code);

#endif
