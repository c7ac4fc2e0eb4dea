/* SPDX-License-Identifier: Apache-2.0 */
/* own_program.h: this program as its own child. */
#ifndef SHOAL_CMD_OWN_PROGRAM_H
#define SHOAL_CMD_OWN_PROGRAM_H

#include <stddef.h>

#include "shoal.h"

/* Runs words, of which the first is a path, to its end, and returns the first line that it printed,
 * without the newline: empty if it printed none. It ends with this process. SHOAL_ERR_SYSTEM, also
 * if it exits with an error: "`what` failed". */
enum shoal_status own_program_line(char *const words[], const char *what, char *line,
                                   size_t capacity);

#endif
