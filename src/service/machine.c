/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c: what this machine has for jobs. */
#include "service/watch.h"

#define INSTANCES_MAX 100

void service_machine_room(struct service_room *out)
{
    *out = (struct service_room){.instances = INSTANCES_MAX};
}
