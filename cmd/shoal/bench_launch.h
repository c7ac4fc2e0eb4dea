/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_launch.h: a benchmark that starts its own ranks: with -n, --hosts or --virtual-hosts it
 * becomes `shoal run` of itself, with `shoal vhosts` around that for virtual hosts.
 */
#ifndef SHOAL_CMD_BENCH_LAUNCH_H
#define SHOAL_CMD_BENCH_LAUNCH_H

#include <stdbool.h>

#include "arguments.h"
#include "shoal.h"

enum {
    BENCH_LAUNCH_RANKS,
    BENCH_LAUNCH_HOSTS,
    BENCH_LAUNCH_SERVERS,
    BENCH_LAUNCH_AGENT,
    BENCH_LAUNCH_VIRTUAL_HOSTS,
    BENCH_LAUNCH_RATE,
    BENCH_LAUNCH_COUNT
};

/* Their rows in a table of arguments: [FIRST] = BENCH_LAUNCH_ROWS */
#define BENCH_LAUNCH_ROWS                                                                          \
    {"ranks", 'n', "N", "start N ranks here, or on the given hosts (default: one per slot)"},      \
        {"hosts", 'H', "LIST", "start ranks on hosts: a:2,b:2; as `shoal run`"},                   \
        {"servers", 0, "K", "and K servers; beside virtual hosts, one on each of K more"},         \
        {"agent", 0, "COMMAND", "how to reach the hosts; as `shoal run`"},                         \
        {"virtual-hosts", 0, "N", "make N virtual hosts on this machine, and start there (root)"}, \
    {                                                                                              \
        "rate", 0, "RATE",                                                                         \
            "of the virtual hosts' links, each way (default 1gbit; none); several: as\n"           \
            "`shoal vhosts`"                                                                       \
    }

/* What was asked; values are borrowed. All NULL: this process is a rank. */
struct bench_launch {
    const char *values[BENCH_LAUNCH_COUNT];
};

/* which: BENCH_LAUNCH_RANKS, ... */
enum shoal_status bench_launch_use(struct bench_launch *launch, int which, const char *value);
/* Whether what was given fits together. */
enum shoal_status bench_launch_check(const struct bench_launch *launch);
/* Whether ranks are to be started. */
bool bench_launch_wanted(const struct bench_launch *launch);
/* Starts them, by `shoal bench [benchmark] ARGUMENT...` with the arguments of argv from argv[1] on,
 * less those above. `benchmark` may be NULL. Returns only on failure. */
enum shoal_status bench_launch_become(const struct bench_launch *launch, const char *benchmark,
                                      int argc, char **argv);

#endif
