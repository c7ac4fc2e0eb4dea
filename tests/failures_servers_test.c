/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_servers_test.c: servers that are killed, stopped or never come: every rank gets an error
 * that names the server, and its host where it has been. Ranks and servers are processes of their
 * own, each on a host of its own.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/processes.h"

#define RANKS   3
#define SERVERS 2
#define COUNT   (1 << 17)

/* Shared by all processes. */
struct board {
    int (*main)(shoal_group_t group); /* of a rank */
    const char *timeout_ms;
    int signal;        /* what the last server gets; 0: it never comes */
    atomic_int summed; /* ranks that have */
    atomic_int over;   /* ranks that need the victim no more */
    atomic_int server; /* the last one's process */
};
static struct board *board;

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

static int be_rank(void)
{
    static const char *const missing[] = {
        "waits for all 2 servers", "server 1 (host host4) does not come",
        "SHOAL_SIZE=3 SHOAL_SERVERS=2 SHOAL_SERVER=1 shoal reduce-server", NULL};
    shoal_group_t group = NULL;
    if (board->signal == 0)
        return expect_status(NULL, shoal_group_create(NULL, &group), SHOAL_ERR_TIMEOUT, "create") ||
               expect_text(NULL, missing);
    CHECK(shoal_group_create(NULL, &group));
    int bad = board->main(group);
    CHECK(shoal_group_free(group));
    return bad;
}

/* The last processes are servers; how they end is not looked at. */
static int be(int rank, int size, const char *store, void *user)
{
    char host[16];
    (void)size;
    (void)user;
    snprintf(host, sizeof(host), "host%d", rank);
    setenv("SHOAL_HOSTNAME", host, 1);
    set_number("SHOAL_SIZE", RANKS);
    set_number("SHOAL_SERVERS", SERVERS);
    setenv("SHOAL_STORE", store, 1);
    setenv("SHOAL_TIMEOUT_MS", board->timeout_ms, 1);
    setenv("SHOAL_SERVER_HOSTS", "host3,host4", 1);
    if (rank < RANKS) {
        set_number("SHOAL_RANK", rank);
        return be_rank();
    }
    set_number("SHOAL_SERVER", rank - RANKS);
    bool is_last = rank == RANKS + SERVERS - 1;
    if (is_last)
        atomic_store(&board->server, (int)getpid());
    if (!is_last || board->signal != 0)
        shoal_serve();
    return 0;
}

/* The victim stays stopped until its parent ends it, so nobody waits for it. */
static void run_board(int (*main)(shoal_group_t), int signal, const char *timeout_ms)
{
    struct processes run = {.size = RANKS + SERVERS, .hosts = RANKS + SERVERS, .bare = be};
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board->main = main;
    board->signal = signal;
    board->timeout_ms = timeout_ms;
    processes_start(&run);
    for (int i = 0; i < 12000 && signal == SIGSTOP && atomic_load(&board->over) < RANKS; i++)
        poll(NULL, 0, 5);
    if (signal == SIGSTOP)
        kill(run.pids[RANKS + SERVERS - 1], SIGKILL);
    processes_wait(&run);
    for (int rank = 0; rank < RANKS; rank++)
        if (run.exit_codes[rank] != 0)
            fail_msg("rank %d: %d: %s", rank, run.exit_codes[rank], run.output[rank]);
    processes_release(&run);
    munmap(board, 4096);
}

static enum shoal_status sum(shoal_group_t group)
{
    static float data[COUNT];
    return shoal_allreduce(data, data, COUNT, SHOAL_F32, SHOAL_SUM, group, NULL);
}

/* When all have summed, rank 0 sends the signal. */
static int hit_server(shoal_group_t group)
{
    CHECK(sum(group));
    atomic_fetch_add(&board->summed, 1);
    if (shoal_group_rank(group) != 0)
        return 0;
    for (int i = 0; i < 12000 && atomic_load(&board->summed) < RANKS; i++)
        poll(NULL, 0, 5);
    REQUIRE(kill(atomic_load(&board->server), board->signal) == 0);
    return 0;
}

static int expect_loss(shoal_group_t group, enum shoal_status status)
{
    static const char *const pieces[] = {"server 1 (host host4)", "lost", NULL};
    return expect_status(group, status, SHOAL_ERR_PEER_LOST, "after a server's death") ||
           expect_text(group, pieces);
}

static int go_on_summing(shoal_group_t group)
{
    enum shoal_status status = SHOAL_OK;
    if (hit_server(group))
        return 1;
    while (status == SHOAL_OK)
        status = sum(group);
    return expect_loss(group, status) || expect_loss(group, shoal_barrier(group, NULL));
}

static int wait_idle(shoal_group_t group)
{
    if (hit_server(group))
        return 1;
    while (shoal_group_health(group) == SHOAL_OK)
        poll(NULL, 0, 5);
    return expect_loss(group, shoal_group_health(group));
}

static int fuse_on(shoal_group_t group)
{
    static const uint64_t counts[1] = {COUNT};
    static float gradient[COUNT];
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    enum shoal_status status = SHOAL_OK;
    shoal_fuse_t fuse = NULL;
    options.tensor_count = 1;
    options.counts = counts;
    options.buffer_bytes = 256 << 10;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    if (hit_server(group))
        return 1;
    while (status == SHOAL_OK) {
        status = shoal_fuse_add(fuse, 0, gradient, NULL, COUNT);
        if (status == SHOAL_OK)
            status = shoal_fuse_finish(fuse);
    }
    int bad = expect_loss(group, status);
    CHECK(shoal_fuse_free(fuse));
    return bad;
}

static int sum_until_deadline(shoal_group_t group)
{
    static const char *const pieces[] = {"server 1 (host host4) does not answer", NULL};
    enum shoal_status status = SHOAL_OK;
    if (hit_server(group))
        return 1;
    while (status == SHOAL_OK)
        status = sum(group);
    int bad = expect_status(group, status, SHOAL_ERR_TIMEOUT, "with a stopped server") ||
              expect_text(group, pieces);
    atomic_fetch_add(&board->over, 1);
    return bad;
}

static void test_killed(void **state)
{
    (void)state;
    run_board(go_on_summing, SIGKILL, "60000");
    run_board(wait_idle, SIGKILL, "60000");
    run_board(fuse_on, SIGKILL, "60000");
}

static void test_stopped(void **state)
{
    (void)state;
    run_board(sum_until_deadline, SIGSTOP, "1500");
}

static void test_missing(void **state)
{
    (void)state;
    run_board(NULL, 0, "1500");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_stopped),
                                       cmocka_unit_test(test_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
