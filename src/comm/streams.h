/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h: over how many connections a link's large messages go, found out on real traffic.
 *
 * A group begins with one connection to each peer (by each interface) and tries twice as many: in
 * turns, so that whatever else goes on meets both alike, and all ranks at once, so that no flow
 * takes from another what it gains. If each of the windows with more was clearly faster than the
 * fastest with fewer, more are kept, and twice as many again are tried, up to 8. Otherwise the
 * trial is over for good. So noise does not add a connection: it would have to come and go with
 * the windows.
 *
 * Faster means more bytes for the time in which anything was on its way, summed over all flows:
 * what the ranks do between operations, and whose core is busy, does not count.
 *
 * Nothing here knows of groups or time: steer.c carries the periods out, each of which lasts a few
 * operations, and brings what all ranks have measured in them. It does so in order but later, when
 * more periods have been planned.
 */
#ifndef SHOAL_COMM_STREAMS_H
#define SHOAL_COMM_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#define COMM_STREAMS_MAX     8
#define COMM_STREAMS_WINDOWS 6   /* of a trial: three with fewer connections, three with more */
#define COMM_STREAMS_PERIODS 256 /* all trials have ended by then */
#define COMM_STREAMS_GAIN    10  /* percent that more have to gain */
#define COMM_STREAMS_UNTIMED (-1)

struct comm_streams_window {
    uint64_t bytes, busy_us;
};

/* What a period is for. */
struct comm_streams_period {
    int count;  /* connections */
    int window; /* to which it adds; COMM_STREAMS_UNTIMED: none */
};

struct comm_streams {
    int best;     /* so far */
    int tried;    /* on trial beside it; 0: trials are over */
    int stretch;  /* periods of a window; 0: not known, and the trial has not begun */
    int planned;  /* periods of this trial */
    int measured; /* likewise, of those that add to a window */
    struct comm_streams_window windows[COMM_STREAMS_WINDOWS];
    /* of the last trial, in bytes per ms and flow: its fastest with fewer, its slowest with more */
    uint64_t fewer_rate, more_rate;
};

void comm_streams_init(struct comm_streams *streams);

/* What the next period is for. */
struct comm_streams_period comm_streams_plan(struct comm_streams *streams);

/* A period is over: how long it took and what all flows together carried in it. True: a trial has
 * ended by it, and `best` holds for what is planned from now on. */
bool comm_streams_judge(struct comm_streams *streams, struct comm_streams_period period,
                        uint64_t elapsed_us, struct comm_streams_window carried);

#endif
