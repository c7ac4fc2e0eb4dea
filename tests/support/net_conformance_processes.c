/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_conformance_processes.c: endpoints in real processes; one is killed, one is stopped.
 *
 * The parent conducts. Each child runs one node and writes what happens to it into a page that all
 * share; it ends by itself when the parent does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/net_conformance.h"

enum { SIZE = 3, VICTIM = 1, NO_RANK = -1 };

static const struct net_fixture *tested;

struct seat {
    unsigned char address[NET_ADDRESS_BYTES];
    size_t address_bytes;
    atomic_bool opened;
    atomic_ullong received[SIZE]; /* from each peer */
    atomic_int lost[SIZE], left[SIZE];
    atomic_int why[SIZE];
    char fault[256];
    atomic_bool faulty;
};

struct stage {
    struct seat seats[SIZE];
    atomic_bool quit;
    atomic_int dead;  /* a rank whose process has ended, NO_RANK before */
    pid_t pids[SIZE]; /* the parent's; 0: not running */
    void *world;
};

/* ---- a child ---- */

static void publish(struct seat *seat, const struct node *node)
{
    for (int i = 0; i < SIZE; i++) {
        atomic_store(&seat->received[i], node->peers[i].received_number);
        atomic_store(&seat->why[i], (int)node->peers[i].why);
        atomic_store(&seat->lost[i], node->peers[i].lost_count);
        atomic_store(&seat->left[i], node->peers[i].left_count);
    }
    if (node->fault[0] != '\0' && !atomic_load(&seat->faulty)) {
        memcpy(seat->fault, node->fault, sizeof(seat->fault));
        atomic_store(&seat->faulty, true);
    }
}

static void meet(struct stage *stage, struct node *node)
{
    struct seat *seat = &stage->seats[node->rank];
    unsigned char addresses[SIZE][NET_ADDRESS_BYTES];
    size_t address_bytes[SIZE];

    memcpy(seat->address, node->address, node->address_bytes);
    seat->address_bytes = node->address_bytes;
    atomic_store(&seat->opened, true);
    for (int i = 0; i < SIZE; i++) {
        while (!atomic_load(&stage->seats[i].opened))
            base_sleep_ms(1);
        memcpy(addresses[i], stage->seats[i].address, NET_ADDRESS_BYTES);
        address_bytes[i] = stage->seats[i].address_bytes;
    }
    node_meet(node, (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, address_bytes);
}

/* Keeps a few frames under way to everybody. */
static void keep_sending(struct node *node)
{
    for (int peer = 0; peer < SIZE; peer++) {
        const struct node_peer *to = &node->peers[peer];

        if (peer != node->rank && to->lost_count + to->left_count == 0 &&
            to->sent_number - to->sent_count < 4)
            node_send(node, peer, (to->sent_number * 4099) % 60000);
    }
}

static void live(struct stage *stage, int rank)
{
    struct node *node = calloc(1, sizeof(*node));
    bool told = false;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (node_open(node, tested, stage->world, rank, SIZE) != SHOAL_OK)
        _exit(2);
    meet(stage, node);
    while (!atomic_load(&stage->quit)) {
        int dead = atomic_load(&stage->dead);

        if (dead != NO_RANK && !told && tested->died != NULL) {
            tested->died(node->endpoint, dead);
            told = true;
        }
        keep_sending(node);
        if (node_poll(node) == 0)
            node_sleep(node, 5);
        publish(&stage->seats[rank], node);
    }
    node_close(node, 1000);
    free(node);
    _exit(0);
}

/* ---- the parent ---- */

static struct stage *raise_curtain(void)
{
    struct stage *stage =
        mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(stage, MAP_FAILED);
    atomic_store(&stage->dead, NO_RANK);
    stage->world = tested->create(SIZE);
    fflush(NULL);
    for (int i = 0; i < SIZE; i++) {
        pid_t pid = fork();

        if (pid == 0)
            live(stage, i);
        assert_true(pid > 0);
        stage->pids[i] = pid;
    }
    return stage;
}

static void lower_curtain(struct stage *stage)
{
    atomic_store(&stage->quit, true);
    for (int i = 0; i < SIZE; i++) {
        int status = 0;

        if (stage->pids[i] == 0)
            continue;
        waitpid(stage->pids[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    for (int i = 0; i < SIZE; i++) {
        if (atomic_load(&stage->seats[i].faulty))
            fail_msg("%s", stage->seats[i].fault);
    }
    tested->destroy(stage->world);
    munmap(stage, sizeof(*stage));
}

static uint64_t received(struct stage *stage, int rank, int from)
{
    return atomic_load(&stage->seats[rank].received[from]);
}

/* Waits until every rank but `without` has received `more` more frames from every other one. */
static void until_more_flows(struct stage *stage, int without, uint64_t more)
{
    int64_t deadline_ns = base_deadline_ns(SUITE_LIMIT_MS);

    for (int rank = 0; rank < SIZE; rank++) {
        for (int from = 0; from < SIZE; from++) {
            uint64_t before = received(stage, rank, from);

            if (rank == from || rank == without || from == without)
                continue;
            while (received(stage, rank, from) < before + more) {
                if (atomic_load(&stage->seats[rank].faulty))
                    fail_msg("%s", stage->seats[rank].fault);
                if (base_now_ns() > deadline_ns)
                    fail_msg("rank %d gets nothing from rank %d", rank, from);
                base_sleep_ms(1);
            }
        }
    }
}

static void until_lost(struct stage *stage, int rank, int peer)
{
    int64_t deadline_ns = base_deadline_ns(SUITE_LIMIT_MS);

    while (atomic_load(&stage->seats[rank].lost[peer]) == 0) {
        if (base_now_ns() > deadline_ns)
            fail_msg("rank %d did not hear that rank %d is lost", rank, peer);
        base_sleep_ms(1);
    }
    assert_int_equal(atomic_load(&stage->seats[rank].why[peer]), SHOAL_ERR_PEER_LOST);
    assert_int_equal(atomic_load(&stage->seats[rank].left[peer]), 0);
}

static void killed_process(void **state)
{
    struct stage *stage = raise_curtain();

    (void)state;
    until_more_flows(stage, NO_RANK, 50);
    kill(stage->pids[VICTIM], SIGKILL);
    waitpid(stage->pids[VICTIM], NULL, 0);
    stage->pids[VICTIM] = 0;
    atomic_store(&stage->dead, VICTIM);
    until_lost(stage, 0, VICTIM);
    until_lost(stage, 2, VICTIM);
    until_more_flows(stage, VICTIM, 50);
    lower_curtain(stage);
}

/* A stopped process is slow, not gone: nobody is told anything, the others go on, and so does it
 * when it is let go. */
static void stopped_process(void **state)
{
    struct stage *stage = raise_curtain();

    (void)state;
    until_more_flows(stage, NO_RANK, 50);
    kill(stage->pids[VICTIM], SIGSTOP);
    until_more_flows(stage, VICTIM, 200);
    base_sleep_ms(1000);
    until_more_flows(stage, VICTIM, 200);
    for (int rank = 0; rank < SIZE; rank++) {
        for (int peer = 0; peer < SIZE; peer++) {
            assert_int_equal(atomic_load(&stage->seats[rank].lost[peer]), 0);
            assert_int_equal(atomic_load(&stage->seats[rank].left[peer]), 0);
        }
    }
    kill(stage->pids[VICTIM], SIGCONT);
    until_more_flows(stage, NO_RANK, 50);
    lower_curtain(stage);
}

int net_conformance_run_processes(const struct net_fixture *fixture)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_process),
        cmocka_unit_test(stopped_process),
    };
    char name[64];

    tested = fixture;
    snprintf(name, sizeof(name), "%s, processes", fixture->transport->name);
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
