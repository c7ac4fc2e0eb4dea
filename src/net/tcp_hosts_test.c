/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_hosts_test.c: tcp between two hosts, each a process in a network namespace of its own, with a
 * wire (veth) between them. Needs root; skipped without.
 *
 * Both hosts also carry the same address, as container bridges do: a connection to it leads to the
 * own host and must not be taken for the peer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
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

enum { HOSTS = 2, FRAMES = 50 };

static const char *interface_option; /* set before the hosts are forked */

static void *create(int size)
{
    (void)size;
    return &interface_option;
}

static void destroy(void *world)
{
    (void)world;
}

static void fill(void *world, int rank, struct net_endpoint_options *options)
{
    (void)rank;
    options->interface = *(const char **)world;
}

static const struct net_fixture fixture = {
    .transport = &net_tcp, .create = create, .destroy = destroy, .fill = fill};

struct host {
    unsigned char address[NET_ADDRESS_BYTES];
    size_t address_bytes;
    atomic_int pid;
    atomic_bool wired, opened;
    atomic_ullong received;
    atomic_int lost, why;
    char text[512], fault[256];
};

struct stage {
    struct host hosts[HOSTS];
    atomic_bool cut, quit;
};

/* ---- a host ---- */

static void run_ip(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run_ip(const char *format, ...)
{
    char command[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    if (system(command) != 0)
        _exit(3);
}

static void until(const atomic_bool *flag)
{
    while (!atomic_load(flag))
        base_sleep_ms(1);
}

static void wire(struct stage *stage, int rank)
{
    if (unshare(CLONE_NEWNET) != 0)
        _exit(3);
    atomic_store(&stage->hosts[rank].pid, (int)getpid());
    while (atomic_load(&stage->hosts[1 - rank].pid) == 0)
        base_sleep_ms(1);
    if (rank == 0)
        run_ip("ip link add v0 type veth peer name v1 netns %d", atomic_load(&stage->hosts[1].pid));
    else
        until(&stage->hosts[0].wired);
    run_ip("ip link set lo up");
    run_ip("ip addr add 172.17.0.1/16 dev lo");
    run_ip("ip addr add 10.77.0.%d/24 dev v%d", rank + 1, rank);
    run_ip("ip -6 addr add fd77::%d/64 dev v%d nodad", rank + 1, rank);
    run_ip("ip link set v%d up", rank);
    atomic_store(&stage->hosts[rank].wired, true);
    until(&stage->hosts[1 - rank].wired);
}

static void meet(struct stage *stage, struct node *node)
{
    struct host *host = &stage->hosts[node->rank];
    unsigned char addresses[HOSTS][NET_ADDRESS_BYTES];
    size_t address_bytes[HOSTS];

    memcpy(host->address, node->address, node->address_bytes);
    host->address_bytes = node->address_bytes;
    atomic_store(&host->opened, true);
    for (int i = 0; i < HOSTS; i++) {
        until(&stage->hosts[i].opened);
        memcpy(addresses[i], stage->hosts[i].address, NET_ADDRESS_BYTES);
        address_bytes[i] = stage->hosts[i].address_bytes;
    }
    node_meet(node, (const unsigned char(*)[NET_ADDRESS_BYTES])addresses, address_bytes);
}

static void live(struct stage *stage, int rank)
{
    struct node *node = calloc(1, sizeof(*node));
    struct host *host = &stage->hosts[rank];
    const struct node_peer *peer = &node->peers[1 - rank];
    bool cut = false;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wire(stage, rank);
    if (node_open(node, &fixture, create(HOSTS), rank, HOSTS) != SHOAL_OK)
        _exit(2);
    meet(stage, node);
    while (!atomic_load(&stage->quit)) {
        if (atomic_load(&stage->cut) && rank == 1 && !cut) {
            run_ip("ip link set v1 down");
            cut = true;
        }
        if (peer->sent_number - peer->sent_count < 4 && peer->lost_count == 0)
            node_send(node, 1 - rank, (peer->sent_number * 3001) % 50000);
        if (node_poll(node) == 0)
            node_sleep(node, 5);
        memcpy(host->text, peer->text, sizeof(host->text));
        memcpy(host->fault, node->fault, sizeof(host->fault));
        atomic_store(&host->why, (int)peer->why);
        atomic_store(&host->lost, peer->lost_count);
        atomic_store(&host->received, node->received_total);
    }
    node_close(node, 0);
    free(node);
    _exit(0);
}

/* ---- the test's process ---- */

static bool can_make_hosts(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWNET) == 0 && system("ip link set lo up") == 0 ? 0 : 1);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static struct stage *start_hosts(pid_t pids[HOSTS])
{
    struct stage *stage =
        mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(stage, MAP_FAILED);
    fflush(NULL);
    for (int i = 0; i < HOSTS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            live(stage, i);
        assert_true(pids[i] > 0);
    }
    return stage;
}

static void end_hosts(struct stage *stage, const pid_t pids[HOSTS])
{
    atomic_store(&stage->quit, true);
    for (int i = 0; i < HOSTS; i++) {
        int status = 0;

        waitpid(pids[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    for (int i = 0; i < HOSTS; i++)
        assert_string_equal(stage->hosts[i].fault, "");
    munmap(stage, sizeof(*stage));
}

static void until_received(struct stage *stage)
{
    int64_t deadline_ns = base_deadline_ns(SUITE_LIMIT_MS);

    for (int i = 0; i < HOSTS; i++) {
        while (atomic_load(&stage->hosts[i].received) < FRAMES) {
            if (atomic_load(&stage->hosts[i].lost) > 0)
                fail_msg("%s", stage->hosts[i].text);
            assert_true(base_now_ns() < deadline_ns);
            base_sleep_ms(1);
        }
    }
}

static void exchange_over(const char *interface)
{
    pid_t pids[HOSTS];
    struct stage *stage;

    interface_option = interface;
    stage = start_hosts(pids);
    interface_option = NULL;
    until_received(stage);
    end_hosts(stage, pids);
}

static void any_address(void **state)
{
    (void)state;
    exchange_over(NULL);
}

static void ipv4_by_network(void **state)
{
    (void)state;
    exchange_over("10.77.0.0/24");
}

static void ipv6_by_prefix(void **state)
{
    (void)state;
    exchange_over("fd77:");
}

/* The wire breaks without a word while frames are under way. */
static void silent_host_is_lost(void **state)
{
    pid_t pids[HOSTS];
    struct stage *stage = start_hosts(pids);
    int64_t deadline_ns;

    (void)state;
    until_received(stage);
    atomic_store(&stage->cut, true);
    deadline_ns = base_deadline_ns(2 * SUITE_LIMIT_MS);
    while (atomic_load(&stage->hosts[0].lost) == 0) {
        assert_true(base_now_ns() < deadline_ns);
        base_sleep_ms(10);
    }
    assert_int_equal(atomic_load(&stage->hosts[0].why), SHOAL_ERR_PEER_LOST);
    assert_non_null(strstr(stage->hosts[0].text, "rank 1 at "));
    end_hosts(stage, pids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_address),
        cmocka_unit_test(ipv4_by_network),
        cmocka_unit_test(ipv6_by_prefix),
        cmocka_unit_test(silent_host_is_lost),
    };

    if (!can_make_hosts()) {
        printf("skipped: network namespaces need root and the ip command\n");
        return 77;
    }
    return cmocka_run_group_tests_name("tcp between hosts", tests, NULL, NULL);
}
