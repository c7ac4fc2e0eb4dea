/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: monotonic time and deadlines, in nanoseconds. */
#ifndef SHOAL_BASE_CLOCK_H
#define SHOAL_BASE_CLOCK_H

#include <stdint.h>

#define BASE_NS_PER_MS   INT64_C(1000000)
#define BASE_NS_PER_S    INT64_C(1000000000)
#define BASE_NO_DEADLINE INT64_MAX

/* CLOCK_MONOTONIC. */
int64_t base_now_ns(void);
/* now + timeout_ms, saturating; timeout_ms < 0: BASE_NO_DEADLINE. */
int64_t base_deadline_ns(int64_t timeout_ms);
/* Milliseconds left, 0 when passed, rounded up; at most INT_MAX, for poll(). */
int base_left_ms(int64_t deadline_ns);
void base_sleep_ms(int64_t ms);

#endif
