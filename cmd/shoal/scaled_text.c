/* SPDX-License-Identifier: Apache-2.0 */
/* scaled_text.c: numbers for people: three digits and a unit. */
#include "scaled_text.h"

#include <stdint.h>
#include <stdio.h>

#define TEXTS      8
#define TEXT_BYTES 32

/* The next of the texts that are valid at a time. */
static char *next_text(void)
{
    static _Thread_local char texts[TEXTS][TEXT_BYTES];
    static _Thread_local int turn;
    return texts[turn++ % TEXTS];
}

/* Three digits, and the largest unit that leaves a number of 1 or more. */
static const char *scaled(double number, double step, const char *const *units, int unit_count)
{
    int unit = 0;
    for (; unit + 1 < unit_count && number >= step; unit++)
        number /= step;
    char *text = next_text();
    int digits = number >= 99.95 || number == (double)(uint64_t)number ? 0
                 : number >= 9.995                                     ? 1
                                                                       : 2;
    snprintf(text, TEXT_BYTES, "%.*f %s", digits, number, units[unit]);
    return text;
}

const char *scaled_bytes_text(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(bytes, 1024, units, 5);
}

const char *scaled_time_text(double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(ns, 1000, units, 4);
}
