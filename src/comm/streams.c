/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: trials of more connections: their periods, and how they end. */
#include "comm/streams.h"

#include <string.h>

#define WINDOW_US      50000 /* shorter ones see little more than the scheduler */
#define STRETCH_MAX    8
#define FLOW_BYTES_MIN (256 << 10) /* less has not filled a link */
#define FLOW_BUSY_US   500

static void begin_trial(struct comm_streams *streams)
{
    streams->tried = 2 * streams->best <= COMM_STREAMS_MAX ? 2 * streams->best : 0;
    streams->stretch = streams->planned = streams->measured = 0;
    memset(streams->windows, 0, sizeof(streams->windows));
}

void comm_streams_init(struct comm_streams *streams)
{
    *streams = (struct comm_streams){.best = 1};
    begin_trial(streams);
}

/* The first period after a change is not timed: connections have to get going. */
struct comm_streams_period comm_streams_plan(struct comm_streams *streams)
{
    struct comm_streams_period period = {streams->best, COMM_STREAMS_UNTIMED};
    int turn = 1 + streams->stretch;
    if (streams->tried == 0 || streams->stretch == 0 ||
        streams->planned == COMM_STREAMS_WINDOWS * turn)
        return period;
    int window = streams->planned / turn;
    if (window % 2 == 1)
        period.count = streams->tried;
    if (streams->planned++ % turn > 0)
        period.window = window;
    return period;
}

static bool is_enough(const struct comm_streams_window *window)
{
    return window->bytes >= FLOW_BYTES_MIN && window->busy_us >= FLOW_BUSY_US;
}

/* Whether the slowest window with more was clearly faster than the fastest with fewer. */
static bool more_won(struct comm_streams *streams)
{
    uint64_t fewer = 0, more = UINT64_MAX;
    for (int i = 0; i < COMM_STREAMS_WINDOWS; i++) {
        const struct comm_streams_window *window = &streams->windows[i];
        if (!is_enough(window))
            return false;
        uint64_t rate = window->bytes * 1000 / window->busy_us;
        if (i % 2 == 0)
            fewer = rate > fewer ? rate : fewer;
        else
            more = rate < more ? rate : more;
    }
    streams->fewer_rate = fewer;
    streams->more_rate = more;
    return more * 100 > fewer * (100 + COMM_STREAMS_GAIN);
}

static int stretch_for(uint64_t elapsed_us)
{
    uint64_t stretch = WINDOW_US / (elapsed_us + 1) + 1;
    return stretch < STRETCH_MAX ? (int)stretch : STRETCH_MAX;
}

bool comm_streams_judge(struct comm_streams *streams, struct comm_streams_period period,
                        uint64_t elapsed_us, struct comm_streams_window carried)
{
    if (streams->tried == 0)
        return false;
    if (streams->stretch == 0) {
        streams->stretch = stretch_for(elapsed_us);
        return false;
    }
    if (period.window == COMM_STREAMS_UNTIMED)
        return false;
    streams->windows[period.window].bytes += carried.bytes;
    streams->windows[period.window].busy_us += carried.busy_us;
    if (++streams->measured < COMM_STREAMS_WINDOWS * streams->stretch)
        return false;
    if (more_won(streams)) {
        streams->best = streams->tried;
        begin_trial(streams);
    } else {
        streams->tried = 0;
    }
    return true;
}
