/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c: adds the time since the last change to what it belongs to, and divides by it. */
#include "fuse/meter.h"

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
