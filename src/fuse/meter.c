/* SPDX-License-Identifier: Apache-2.0 */
/* meter.c: adds the time since the last change to what it belongs to. */
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
