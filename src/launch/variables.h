/* SPDX-License-Identifier: Apache-2.0 */
/* variables.h: environments in the making, as execve wants them. */
#ifndef SHOAL_LAUNCH_VARIABLES_H
#define SHOAL_LAUNCH_VARIABLES_H

#include <stdbool.h>

#include "shoal.h"

struct launch_variables { /* zeroed to start */
    char **entries;       /* "NAME=VALUE", NULL behind the last; NULL when none was put */
    int count, capacity;
};

/* Puts a copy of "NAME=VALUE" in, in place of what has that name. SHOAL_ERR_ARGUMENT without '='.
 */
enum shoal_status launch_variables_put(struct launch_variables *variables, const char *entry);
enum shoal_status launch_variables_set(struct launch_variables *variables, const char *name,
                                       const char *value);
enum shoal_status launch_variables_set_number(struct launch_variables *variables, const char *name,
                                              long number);
/* Puts all of a NULL-terminated list in. */
enum shoal_status launch_variables_put_all(struct launch_variables *variables, char *const *list);
/* NULL if there is none. */
const char *launch_variables_get(const struct launch_variables *variables, const char *name);
void launch_variables_release(struct launch_variables *variables);

/* Whether an entry of the launcher's environment goes to other hosts: all but what describes a
 * login there (HOME, USER, SSH_*, ...). */
bool launch_variable_travels(const char *entry);

#endif
