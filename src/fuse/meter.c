/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c: adds the time since the last change to what it belongs to, and divides by it. */
#include "fuse/meter.h"

/* Of buffers. From FAST on what a message costs the processors is more than what short ones gain at
 * the ends of an operation; links that were fast once are not slow because processors are busy. */
#define PACE_FAST 130e6
#define PACE_SLOW 65e6

/* Where the processors of several hosts are those of one machine, buffers are slow on any link.
 * Links of 1 Gbit/s were seen to carry up to 200 MB/s, since they are not busy all at once, and
 * those without a limit 270 and more with four ranks on a core. */
#define LINKS_FAST 260e6
#define LINKS_SLOW 210e6

void fuse_meter_turn(struct fuse_meter *meter, int64_t now_ns)
{
    int64_t passed_ns = now_ns - meter->since_ns;
    meter->since_ns = now_ns;
    if (meter->in_flight > 0)
        meter->flight_ns += passed_ns;
    if (meter->waiting > 0)
        meter->waited_ns += passed_ns;
    if (meter->in_flight > 0 && meter->waiting > 0)
        meter->exposed_ns += passed_ns;
}

double fuse_meter_pace(struct fuse_meter *meter, uint64_t bytes)
{
    int64_t passed_ns = meter->flight_ns - meter->step_flight_ns;
    meter->step_flight_ns = meter->flight_ns;
    return passed_ns > 0 ? (double)bytes * 1e9 / (double)passed_ns : 0;
}

double fuse_meter_links(struct fuse_meter *meter, uint64_t bytes, uint64_t busy_us, int links)
{
    uint64_t more = bytes - meter->step_link_bytes, busy = busy_us - meter->step_link_busy;
    meter->step_link_bytes = bytes;
    meter->step_link_busy = busy_us;
    return busy > 0 ? (double)more * 1e6 / (double)busy * links : 0;
}

bool fuse_meter_is_fast(double pace, double links, bool was)
{
    return pace > (was ? PACE_SLOW : PACE_FAST) || links > (was ? LINKS_SLOW : LINKS_FAST);
}
