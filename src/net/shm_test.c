/* SPDX-License-Identifier: Apache-2.0 */
/* shm_test.c: the conformance suite over shm, and what its map must not say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/shared.h"
#include "base/status.h"
#include "net/shm.h"
#include "support/net_conformance.h"

enum { RANKS_MAX = 8, RING_BYTES = 8192, BELL_BYTES = 64 };

/* What boot makes: a region per rank with its bell in front and its part behind. */
struct world {
    struct base_shared regions[RANKS_MAX];
    struct net_shm_map maps[RANKS_MAX];
    void *parts[RANKS_MAX];
    struct base_bell *bells[RANKS_MAX];
    int event_fds[RANKS_MAX], world_ranks[RANKS_MAX];
    int size;
};

static void *create(int size)
{
    struct world *world = calloc(1, sizeof(*world));

    world->size = size;
    for (int i = 0; i < size; i++) {
        struct base_shared *region = &world->regions[i];

        if (base_shared_create("shm_test", BELL_BYTES + net_shm_part_bytes(size, RING_BYTES),
                               BASE_FORK_SHARES, region) != SHOAL_OK)
            abort();
        world->bells[i] = region->address;
        world->parts[i] = (char *)region->address + BELL_BYTES;
        world->event_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        world->world_ranks[i] = i;
    }
    for (int i = 0; i < size; i++)
        world->maps[i] = (struct net_shm_map){.local_rank = i,
                                              .local_size = size,
                                              .world_ranks = world->world_ranks,
                                              .parts = world->parts,
                                              .ring_bytes = RING_BYTES,
                                              .bells = world->bells,
                                              .event_fds = world->event_fds};
    return world;
}

static void destroy(void *argument)
{
    struct world *world = argument;

    for (int i = 0; i < world->size; i++) {
        base_shared_release(&world->regions[i]);
        close(world->event_fds[i]);
    }
    free(world);
}

static void fill(void *world, int rank, struct net_endpoint_options *options)
{
    options->context = &((struct world *)world)->maps[rank];
}

static void died(struct net_endpoint *endpoint, int peer)
{
    net_shm_peer_gone(endpoint, peer, false);
}

static const struct net_fixture fixture = {.transport = &net_shm,
                                           .threads = true,
                                           .processes = true,
                                           .create = create,
                                           .destroy = destroy,
                                           .fill = fill,
                                           .died = died};

/* ---- what only shm has ---- */

static bool heard_lost(void *user)
{
    return ((struct node_peer *)user)->lost_count > 0;
}

static bool heard_left(void *user)
{
    return ((struct node_peer *)user)->left_count > 0;
}

/* What a process wrote before it ended is still delivered, whoever hears first of its end. */
static void gone_after_the_last_frame(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, &fixture, 2);
    for (int i = 0; i < 10; i++)
        node_send(&suite.nodes[0], 1, 100);
    net_shm_peer_gone(suite.nodes[1].endpoint, 0, false);
    suite_until(&suite, heard_lost, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].received_total, 10);
    assert_non_null(strstr(suite.nodes[1].peers[0].text, "rank 0"));
    suite_close(&suite);
}

static void gone_in_order_is_left(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, &fixture, 2);
    net_shm_peer_gone(suite.nodes[1].endpoint, 0, true);
    suite_until(&suite, heard_left, &suite.nodes[1].peers[0]);
    assert_int_equal(suite.nodes[1].peers[0].lost_count, 0);
    suite_close(&suite);
}

static enum shoal_status open_with(struct net_shm_map *map, int rank)
{
    struct net_endpoint_options options = {.rank = rank, .size = 2, .context = map};
    struct net_events events = {0};
    unsigned char address[NET_ADDRESS_BYTES];
    size_t address_bytes = sizeof(address);
    struct net_endpoint *endpoint = NULL;
    enum shoal_status status = net_shm.open(&options, &events, address, &address_bytes, &endpoint);

    if (status == SHOAL_OK)
        net_shm.close(endpoint, 0);
    else
        assert_string_not_equal(base_error_text(), "");
    return status;
}

static void wrong_maps(void **state)
{
    struct world *world = create(2);
    struct net_shm_map map = world->maps[0];

    (void)state;
    assert_int_equal(open_with(&map, 0), SHOAL_OK);
    assert_int_equal(open_with(NULL, 0), SHOAL_ERR_ARGUMENT);
    assert_int_equal(open_with(&map, 1), SHOAL_ERR_ARGUMENT);
    map.ring_bytes = 5000;
    assert_int_equal(open_with(&map, 0), SHOAL_ERR_OPTION);
    map = world->maps[0];
    world->world_ranks[1] = 7;
    assert_int_equal(open_with(&map, 0), SHOAL_ERR_ARGUMENT);
    destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gone_after_the_last_frame),
        cmocka_unit_test(gone_in_order_is_left),
        cmocka_unit_test(wrong_maps),
    };
    int failed = net_conformance_run(&fixture);

    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
