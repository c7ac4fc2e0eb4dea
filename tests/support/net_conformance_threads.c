/* SPDX-License-Identifier: Apache-2.0 */
/* net_conformance_threads.c: endpoints in threads of their own that sleep, wake and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/net_conformance.h"
#include "support/skip.h"

#define SLEEP_LIMIT_MS 20000 /* who sleeps longer was not woken */

static const struct net_fixture *tested;

/* One rank's thread: sends `frames` frames to every other, and ends when it has all of theirs. */
struct swimmer {
    pthread_t thread;
    struct node *node;
    uint64_t frames;
    int awake_polls; /* how often to poll in vain before sleeping */
};

static bool all_came(const struct swimmer *swimmer)
{
    const struct node *node = swimmer->node;
    uint64_t others = (uint64_t)node->size - 1;

    return node->received_total == others * swimmer->frames &&
           node->sent_total == others * swimmer->frames;
}

static void *swim(void *argument)
{
    struct swimmer *swimmer = argument;
    struct node *node = swimmer->node;
    uint64_t queued = 0;
    int in_vain = 0;

    while (!all_came(swimmer) && node->fault[0] == '\0') {
        if (queued < swimmer->frames) {
            for (int peer = 0; peer < node->size; peer++) {
                if (peer != node->rank)
                    node_send(node, peer, (queued * 7919) % 3000);
            }
            queued++;
        }
        if (node_poll(node) > 0 || queued < swimmer->frames || all_came(swimmer))
            in_vain = 0;
        else if (++in_vain > swimmer->awake_polls && node_sleep(node, SLEEP_LIMIT_MS))
            snprintf(node->fault, sizeof(node->fault), "rank %d slept and was not woken",
                     node->rank);
    }
    return NULL;
}

static void swim_together(int size, uint64_t frames, int awake_polls)
{
    struct swimmer swimmers[NODE_PEERS_MAX];
    struct suite suite;

    suite_open(&suite, tested, size);
    for (int i = 0; i < size; i++) {
        swimmers[i] =
            (struct swimmer){.node = &suite.nodes[i], .frames = frames, .awake_polls = awake_polls};
        pthread_create(&swimmers[i].thread, NULL, swim, &swimmers[i]);
    }
    for (int i = 0; i < size; i++)
        pthread_join(swimmers[i].thread, NULL);
    for (int i = 0; i < size; i++)
        assert_string_equal(suite.nodes[i].fault, "");
    suite_close(&suite);
}

static void no_wake_up_is_lost(void **state)
{
    (void)state;
    swim_together(2, 1500, 0);
    swim_together(3, 500, 0);
    swim_together(4, 300, 3);
}

/* One frame at a time to and fro: each side sleeps before every answer. */
struct bouncer {
    pthread_t thread;
    struct node *node;
    uint64_t rounds;
};

static void bounce_back(struct node *node, int peer, const struct net_header *header)
{
    struct bouncer *bouncer = node->user;

    (void)header;
    if (node->peers[peer].sent_number < bouncer->rounds)
        node_send(node, peer, 8);
}

static void *bounce(void *argument)
{
    struct bouncer *bouncer = argument;
    struct node *node = bouncer->node;

    while (node->received_total < bouncer->rounds && node->fault[0] == '\0') {
        if (node_poll(node) == 0 && node_sleep(node, SLEEP_LIMIT_MS))
            snprintf(node->fault, sizeof(node->fault), "rank %d slept and was not woken",
                     node->rank);
    }
    return NULL;
}

static void sleeping_ping_pong(void **state)
{
    struct bouncer bouncers[2];
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    for (int i = 0; i < 2; i++) {
        bouncers[i] = (struct bouncer){.node = &suite.nodes[i], .rounds = 1000};
        suite.nodes[i].user = &bouncers[i];
        suite.nodes[i].on_received = bounce_back;
    }
    node_send(&suite.nodes[0], 1, 8);
    for (int i = 0; i < 2; i++)
        pthread_create(&bouncers[i].thread, NULL, bounce, &bouncers[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(bouncers[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        assert_string_equal(suite.nodes[i].fault, "");
    suite_close(&suite);
}

struct sleeper {
    struct node *node;
    bool timed_out;
};

static void *sleep_once(void *argument)
{
    struct sleeper *sleeper = argument;

    while (node_poll(sleeper->node) > 0)
        ;
    sleeper->timed_out = node_sleep(sleeper->node, SLEEP_LIMIT_MS);
    return NULL;
}

static void wake_ends_a_sleep(void **state)
{
    struct suite suite;

    (void)state;
    suite_open(&suite, tested, 2);
    for (int delay_ms = 0; delay_ms < 40; delay_ms += 13) {
        struct sleeper sleeper = {.node = &suite.nodes[0]};
        pthread_t thread;

        pthread_create(&thread, NULL, sleep_once, &sleeper);
        base_sleep_ms(delay_ms);
        tested->transport->wake(suite.nodes[0].endpoint);
        pthread_join(thread, NULL);
        assert_false(sleeper.timed_out);
        node_poll(&suite.nodes[0]);
    }
    suite_close(&suite);
}

/* Without news a sleep lasts: wake-ups are not left over from before. */
static void sleep_lasts_without_news(void **state)
{
    struct suite suite;
    int slept = 0;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 8);
    suite_until_received(&suite, 1, 1);
    tested->transport->wake(suite.nodes[1].endpoint);
    for (int i = 0; i < 20 && slept == 0; i++) {
        while (node_poll(&suite.nodes[1]) > 0)
            ;
        slept += node_sleep(&suite.nodes[1], 30);
    }
    assert_int_equal(slept, 1);
    suite_close(&suite);
}

/* Both sides close at once with more queued than the way between them holds: both must finish,
 * because each still takes what comes. */
static void *close_lingering(void *argument)
{
    node_close(argument, 20000);
    return NULL;
}

static void both_close_at_once(void **state)
{
    struct suite suite;
    pthread_t threads[2];
    int64_t start_ns;

    (void)state;
    suite_open(&suite, tested, 2);
    node_send(&suite.nodes[0], 1, 8);
    suite_until_received(&suite, 1, 1);
    for (int i = 0; i < 2; i++) {
        for (int frame = 0; frame < 8; frame++)
            node_send(&suite.nodes[i], 1 - i, UINT64_C(4) << 20);
    }
    start_ns = base_now_ns();
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, close_lingering, &suite.nodes[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(base_now_ns() - start_ns < 15000 * BASE_NS_PER_MS);
    suite_close(&suite);
}

static void *hear_of_the_end(void *argument)
{
    struct node *node = argument;

    while (node->peers[0].lost_count == 0 && node->fault[0] == '\0') {
        if (node_poll(node) == 0 && node_sleep(node, SLEEP_LIMIT_MS))
            snprintf(node->fault, sizeof(node->fault), "rank %d did not hear of the end",
                     node->rank);
    }
    return NULL;
}

static void kill_wakes_sleepers(void **state)
{
    struct suite suite;
    pthread_t threads[2];

    (void)state;
    if (tested->kill == NULL)
        skip_because("%s: a rank dies only with its process", tested->transport->name);
    suite_open(&suite, tested, 3);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, hear_of_the_end, &suite.nodes[i + 1]);
    base_sleep_ms(20);
    tested->kill(suite.world, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_string_equal(suite.nodes[1].fault, "");
    assert_string_equal(suite.nodes[2].fault, "");
    suite_close(&suite);
}

int net_conformance_run_threads(const struct net_fixture *fixture)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_lost), cmocka_unit_test(sleeping_ping_pong),
        cmocka_unit_test(wake_ends_a_sleep),  cmocka_unit_test(sleep_lasts_without_news),
        cmocka_unit_test(both_close_at_once), cmocka_unit_test(kill_wakes_sleepers),
    };
    char name[64];

    tested = fixture;
    snprintf(name, sizeof(name), "%s, threads", fixture->transport->name);
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
