/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario.h: ranks as real processes among which something goes wrong, for tests.
 *
 * A scenario runs on a layout: the ways by which the same ranks reach each other. Hosts have names
 * ("host0", "host1"), so that messages can be checked. Ranks and the test share a board. After the
 * act each rank checks that shoal_group_free has given back its memory, descriptors and threads;
 * after the run the test checks that nothing is left on the machine.
 */
#ifndef SHOAL_TESTS_SCENARIO_H
#define SHOAL_TESTS_SCENARIO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/processes.h"

#define SCENARIO_VARIABLES 6

/* The status must be `expected` and the last error contain all pieces. */
#define EXPECT(call, expected, ...)                                      \
    do {                                                                 \
        if (expect_status(group, (call), (expected), #call))             \
            return 1;                                                    \
        if (expect_text(NULL, (const char *const[]){__VA_ARGS__, NULL})) \
            return 1;                                                    \
    } while (0)

enum scenario_path { PATH_LOCAL, PATH_SHM, PATH_TCP, PATH_MIXED };

struct layout {
    const char *name;
    int size, hosts;
    enum scenario_path path;
};
/* local: same-host path; shm: the engine over shared memory; tcp: a host for each rank; mixed: two
 * hosts of two. Ended by size 0. */
extern const struct layout scenario_layouts[];

/* A store for ranks to meet in, in the memory that they share: nobody serves it. */
struct board_store {
    atomic_flag lock;
    atomic_int count;
    struct board_entry {
        char key[128];
        unsigned char value[2048];
        size_t bytes;
    } entries[4 * PROCESSES_MAX];
};

/* Shared by the ranks and the test. */
struct board {
    struct board_store store;
    atomic_int stage[PROCESSES_MAX]; /* each rank's own step */
    atomic_int go;                   /* the test's */
    atomic_llong at_ns;              /* when the thing happened */
    int size;                        /* ranks */
    int victim, second;
    int variant; /* what the test likes */
    char text[1024];
    shoal_group_t group; /* of a rank, for its other threads: not shared in truth */
};

struct scenario {
    const struct layout *layout;
    int timeout_ms;                              /* of the group; 0: 20 s */
    const char *environment[SCENARIO_VARIABLES]; /* "NAME=value" for all ranks */
    const char *victim_environment;              /* one more for the victim */
    int variant;
    int victim;
    int second;        /* another victim; 0: none */
    int victim_code;   /* the victim's exit code: 0, or 256 + signal */
    bool by_address;   /* ranks meet at a store that rank 0 serves, which lasts, not on the board */
    bool victim_stays; /* the victim does not give back what it has: it dies or exits */
    int (*act)(shoal_group_t group, struct board *board);
    /* Instead of act: without a group made. */
    int (*bare)(int rank, int size, const char *store, struct board *board);
    void (*meanwhile)(struct board *board, const pid_t *pids); /* in the test's process */
    int deadline_s;
};

/* Runs it; fails the test if a rank ends otherwise than expected, or something is left behind. */
void scenario_run(const struct scenario *scenario);

/* On every layout, with the rest as given. */
void scenario_on_every_layout(struct scenario scenario);

/* cmocka group setup: the program gets namespaces of its own, so that what is left behind can be
 * told from what others do. Without root it stays where it is. */
int scenario_isolate(void **state);
/* True if scenario_isolate could. */
bool scenario_isolated(void);

/* Stops the victim when all ranks' steps are 1, until the others' are 2: a `meanwhile`. */
void scenario_stop_victim(struct board *board, const pid_t *pids);

/* ---- in a rank */

int64_t scenario_now_ns(void);
/* Milliseconds since then. */
int64_t scenario_since_ms(int64_t then_ns);
/* Waits until the word is at least `value`; gives up after 60 s (returns 1). */
int board_wait(atomic_int *word, int value);
/* Its step is 1 now; the victim goes on when all ranks' are, the others at once. 1: it gave up. */
int scenario_let_victim_go(shoal_group_t group, struct board *board);
/* Options for a group as scenario_run makes it, meeting at "host:port". */
void scenario_options(const struct scenario *scenario, int rank, const char *store,
                      struct shoal_group_options *options);
/* The board as a store. */
void board_store(struct board *board, struct shoal_store *out);
/* One correct allreduce of `count` elements, checked: SHOAL_ERR_INTERNAL for a wrong sum. */
enum shoal_status scenario_sum(shoal_group_t group, uint64_t count, bool later);

#endif
