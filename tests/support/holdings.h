/* SPDX-License-Identifier: Apache-2.0 */
/* holdings.h: what this process holds of the kernel's, for tests that look for what is left. */
#ifndef SHOAL_TESTS_HOLDINGS_H
#define SHOAL_TESTS_HOLDINGS_H

#include <stdint.h>

/* Open descriptors; -1 if they can't be counted. */
int open_descriptors(void);
int running_threads(void);
/* The threads once there are at most `expected`, which is waited for a while: the kernel still
 * counts one for a moment after it was joined. A sanitizer's own thread is not counted. */
int threads_left(int expected);
/* Likewise of descriptors: of a rank that serves the store some last as long as its clients'. */
int descriptors_left(int expected);

/* Shared memory that this process's own regions have taken; -1 if it can't be counted. */
int64_t shared_bytes_taken(void);

#endif
