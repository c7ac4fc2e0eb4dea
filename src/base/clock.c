/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c: CLOCK_MONOTONIC, and deadlines as points on it. */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

int64_t base_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * BASE_NS_PER_S + now.tv_nsec;
}

int64_t base_deadline_ns(int64_t timeout_ms)
{
    int64_t span, deadline;
    if (timeout_ms < 0 || __builtin_mul_overflow(timeout_ms, BASE_NS_PER_MS, &span) ||
        __builtin_add_overflow(base_now_ns(), span, &deadline))
        return BASE_NO_DEADLINE;
    return deadline;
}

int base_left_ms(int64_t deadline_ns)
{
    if (deadline_ns == BASE_NO_DEADLINE)
        return INT_MAX;
    int64_t left_ns = deadline_ns - base_now_ns();
    if (left_ns <= 0)
        return 0;
    int64_t left_ms = left_ns / BASE_NS_PER_MS + (left_ns % BASE_NS_PER_MS != 0);
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void base_sleep_ms(int64_t ms)
{
    if (ms <= 0)
        return;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * BASE_NS_PER_MS};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
}
