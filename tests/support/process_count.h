/* SPDX-License-Identifier: Apache-2.0 */
/* process_count.h: what is left running. */
#ifndef SHOAL_TESTS_PROCESS_COUNT_H
#define SHOAL_TESTS_PROCESS_COUNT_H

/* Processes of this machine whose arguments match grep's pattern. One like "9[5]" does not match
 * the grep itself. */
int process_count_with(const char *pattern);

#endif
