/* SPDX-License-Identifier: Apache-2.0 */
/* inproc_test.c: the conformance suite over inproc. */
#include <stdlib.h>

#include "net/inproc.h"
#include "support/net_conformance.h"

static void *create(int size)
{
    struct net_inproc_hall *hall = NULL;

    return net_inproc_hall_create(size, 4096, &hall) == SHOAL_OK ? hall : NULL;
}

static void destroy(void *world)
{
    net_inproc_hall_free(world);
}

static void fill(void *world, int rank, struct net_endpoint_options *options)
{
    (void)rank;
    options->context = world;
}

static void kill_rank(void *world, int rank)
{
    net_inproc_kill(world, rank);
}

int main(void)
{
    struct net_fixture fixture = {.transport = &net_inproc,
                                  .threads = true,
                                  .create = create,
                                  .destroy = destroy,
                                  .fill = fill,
                                  .kill = kill_rank};

    return net_conformance_run(&fixture);
}
