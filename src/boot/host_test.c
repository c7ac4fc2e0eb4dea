/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_test.c: ranks of one host as real processes that meet, share memory and die; and everybody
 * who does not belong to them.
 */
#include "boot/host.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/host_message.h"
#include "net/proof.h"

#define REGION_BYTES  ((size_t)8 << 20)
#define SIZE_MAX_HERE 160

/* What a rank's process tells the test. */
struct report {
    enum shoal_status status;
    char text[400];
};

static unsigned char job[NET_JOB_BYTES], secret[NET_SECRET_BYTES];
static uint64_t nonce;
static struct report *reports; /* shared with the processes */
static pid_t pids[SIZE_MAX_HERE];

static struct boot_host_options options_of(int rank, int size, int64_t timeout_ms)
{
    return (struct boot_host_options){.local_rank = rank,
                                      .local_size = size,
                                      .job = job,
                                      .secret = secret,
                                      .nonce = nonce,
                                      .region_bytes = REGION_BYTES,
                                      .commit_bytes = 65536,
                                      .deadline_ns = base_deadline_ns(timeout_ms)};
}

static void tell(int slot, enum shoal_status status)
{
    reports[slot].status = status;
    snprintf(reports[slot].text, sizeof(reports[slot].text), "%s", base_error_text());
}

/* A rank that meets, writes its number in its region, rings each peer's eventfd, waits for all of
 * them at its own, and looks whether every region holds its owner's number. */
static void meet_and_look(int slot, const struct boot_host_options *options)
{
    struct boot_host *host;
    enum shoal_status status = boot_host_meet(options, &host);
    if (status == SHOAL_OK) {
        int *own = host->regions[options->local_rank].address;
        own[7] = 1000 + options->local_rank;
        uint64_t one = 1, rung = 0;
        for (int i = 0; i < options->local_size; i++) {
            if (write(host->event_fds[i], &one, sizeof(one)) != sizeof(one))
                status = base_error(SHOAL_ERR_SYSTEM, "eventfd of %d", i);
        }
        while (status == SHOAL_OK && rung < (uint64_t)options->local_size) {
            uint64_t more;
            struct pollfd one_fd = {.fd = host->event_fds[options->local_rank], .events = POLLIN};
            if (poll(&one_fd, 1, 20000) != 1)
                status = base_error(SHOAL_ERR_TIMEOUT, "%d rung", (int)rung);
            else if (read(one_fd.fd, &more, sizeof(more)) == sizeof(more))
                rung += more;
        }
        for (int i = 0; status == SHOAL_OK && i < options->local_size; i++) {
            if (((int *)host->regions[i].address)[7] != 1000 + i ||
                host->regions[i].bytes != REGION_BYTES)
                status = base_error(SHOAL_ERR_INTERNAL, "region of %d is another", i);
        }
        boot_host_free(host);
    }
    tell(slot, status);
    _exit(base_memory_blocks() == 0 ? 0 : 3);
}

static void start(int slot, const struct boot_host_options *options)
{
    reports[slot].status = SHOAL_IN_PROGRESS;
    pids[slot] = fork();
    assert_true(pids[slot] >= 0);
    if (pids[slot] == 0)
        meet_and_look(slot, options);
}

static void finish(int slot)
{
    int result;
    assert_int_equal(waitpid(pids[slot], &result, 0), pids[slot]);
    assert_int_equal(result, 0);
}

static void assert_report(int slot, enum shoal_status status, const char *part)
{
    if (reports[slot].status != status || strstr(reports[slot].text, part) == NULL)
        fail_msg("rank %d: %d \"%s\", not %d \"%s\"", slot, reports[slot].status,
                 reports[slot].text, status, part);
}

static void ranks_of_many_sizes_meet(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 8, 130}; /* the last needs two messages per rank */
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        nonce++;
        for (int rank = sizes[s] - 1; rank >= 0; rank--) {
            struct boot_host_options options = options_of(rank, sizes[s], 60000);
            start(rank, &options);
        }
        for (int rank = 0; rank < sizes[s]; rank++)
            finish(rank);
        for (int rank = 0; rank < sizes[s]; rank++)
            assert_report(rank, SHOAL_OK, "");
    }
}

static void a_missing_rank_is_named_on_all(void **state)
{
    (void)state;
    nonce++;
    for (int rank = 0; rank < 4; rank++) {
        struct boot_host_options options = options_of(rank, 4, 400);
        if (rank != 2)
            start(rank, &options);
    }
    for (int rank = 0; rank < 4; rank++) {
        if (rank != 2)
            finish(rank);
    }
    for (int rank = 0; rank < 4; rank++) {
        if (rank == 2)
            continue;
        assert_report(rank, SHOAL_ERR_TIMEOUT, "local ranks 2 of 4");
        assert_report(rank, SHOAL_ERR_TIMEOUT, "SHOAL_HOST_ID");
    }
}

static void a_missing_lowest_rank_is_a_timeout(void **state)
{
    (void)state;
    nonce++;
    struct boot_host_options options = options_of(1, 2, 200);
    start(1, &options);
    finish(1);
    assert_report(1, SHOAL_ERR_TIMEOUT, "cannot reach local rank 0");
}

static void a_second_process_of_a_rank_is_told(void **state)
{
    (void)state;
    nonce++;
    struct boot_host_options options = options_of(1, 3, 20000);
    start(1, &options);
    start(2, &options);
    options.local_rank = 0;
    start(0, &options);
    for (int slot = 0; slot < 3; slot++)
        finish(slot);
    for (int slot = 0; slot < 3; slot++) {
        assert_report(slot, SHOAL_ERR_RANK_TAKEN, "local rank 1 (pid ");
        assert_report(slot, SHOAL_ERR_RANK_TAKEN, "taken by another process, pid ");
    }
}

/* The socket's name is a second lowest rank's too. */
static void a_second_lowest_rank_is_told(void **state)
{
    (void)state;
    nonce++;
    struct boot_host_options options = options_of(0, 2, 2000);
    start(0, &options);
    start(2, &options);
    finish(0);
    finish(2);
    int taken = reports[0].status == SHOAL_ERR_RANK_TAKEN ? 0 : 2;
    assert_report(taken, SHOAL_ERR_RANK_TAKEN, "local rank 0 of this job already");
    assert_report(2 - taken, SHOAL_ERR_TIMEOUT, "local ranks 1 of 2");
}

static void a_wrong_secret_is_refused(void **state)
{
    (void)state;
    nonce++;
    unsigned char other[NET_SECRET_BYTES];
    net_secret_from_text("another", other);
    struct boot_host_options options = options_of(0, 2, 1500);
    start(0, &options);
    options.local_rank = 1;
    options.secret = other;
    start(2, &options);
    finish(2);
    assert_report(2, SHOAL_ERR_PEER_REFUSED, "secret");
    options.secret = secret;
    start(1, &options);
    finish(0);
    finish(1);
    assert_report(0, SHOAL_OK, "");
    assert_report(1, SHOAL_OK, "");
}

static void strangers_disturb_nothing(void **state)
{
    (void)state;
    nonce++;
    struct boot_host_options options = options_of(0, 2, 20000);
    start(0, &options);
    struct sockaddr_un name;
    socklen_t bytes = host_socket_name(&options, &name);
    int strangers[100];
    for (int i = 0; i < 100; i++) {
        strangers[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        while (connect(strangers[i], (struct sockaddr *)&name, bytes) != 0)
            base_sleep_ms(1);
        char garbage[300];
        memset(garbage, i, sizeof(garbage));
        if (i % 3 != 0)
            assert_true(send(strangers[i], garbage, (size_t)(1 + i * 2), MSG_NOSIGNAL) > 0 ||
                        errno == EPIPE || errno == ECONNRESET);
    }
    options.local_rank = 1;
    start(1, &options);
    finish(0);
    finish(1);
    assert_report(0, SHOAL_OK, "");
    assert_report(1, SHOAL_OK, "");
    for (int i = 0; i < 100; i++)
        close(strangers[i]);
}

/* A member that is killed before the others come ends the meeting at once. */
static void a_killed_member_is_named(void **state)
{
    (void)state;
    nonce++;
    struct boot_host_options options = options_of(0, 3, 60000);
    start(0, &options);
    options.local_rank = 1;
    start(1, &options);
    base_sleep_ms(200);
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    finish(0);
    /* Killed before it was a member it is only missing, so the test gives it time to come; after
     * that it must not take the minute. */
    assert_report(0, SHOAL_ERR_PEER_LOST, "local rank 1 (pid ");
}

/* One that cannot get its memory tells all the others. */
static void a_member_without_memory_is_named_on_all(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        nonce++;
        for (int rank = 0; rank < 3; rank++) {
            struct boot_host_options options = options_of(rank, 3, 20000);
            if (rank == bad)
                options.region_bytes = (size_t)1 << 61;
            start(rank, &options);
        }
        for (int rank = 0; rank < 3; rank++)
            finish(rank);
        for (int rank = 0; rank < 3; rank++) {
            char who[32];
            snprintf(who, sizeof(who), "local rank %d", bad);
            if (rank != bad || bad == 0)
                assert_report(rank, reports[bad].status, who);
            assert_true(reports[rank].status == SHOAL_ERR_MEMORY ||
                        reports[rank].status == SHOAL_ERR_SYSTEM);
        }
    }
}

/* A process that meets as `options` say, forks a child that lives on, tells its number, and waits
 * to be killed. */
static pid_t start_victim(const struct boot_host_options *options, int *told_by)
{
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t victim = fork();
    if (victim == 0) {
        struct boot_host *host;
        if (boot_host_meet(options, &host) != SHOAL_OK)
            _exit(1);
        pid_t own = fork();
        if (own != 0 && write(told[1], &own, sizeof(own)) != sizeof(own))
            _exit(2);
        for (;;)
            pause();
    }
    close(told[1]);
    *told_by = told[0];
    return victim;
}

/* After the meeting each rank sees each other's death, in whatever order they die, also when the
 * dead one had forked a child that lives on. */
static void a_death_shows_at_the_lifeline(void **state)
{
    (void)state;
    for (int own = 0; own < 3; own++) {
        nonce++;
        pid_t victims[3], children[3];
        int told[3];
        for (int rank = 0; rank < 3; rank++) {
            struct boot_host_options options = options_of(rank, 3, 20000);
            if (rank != own)
                victims[rank] = start_victim(&options, &told[rank]);
        }
        struct boot_host_options options = options_of(own, 3, 20000);
        struct boot_host *host;
        assert_int_equal(boot_host_meet(&options, &host), SHOAL_OK);
        struct pollfd lives[3];
        for (int rank = 0; rank < 3; rank++) {
            lives[rank] = (struct pollfd){.fd = rank == own ? -1 : host->life_fds[rank]};
            if (rank == own)
                continue;
            assert_int_equal(read(told[rank], &children[rank], sizeof(pid_t)), sizeof(pid_t));
            close(told[rank]);
        }
        for (int rank = 0; rank < 3; rank++) {
            if (rank == own)
                continue;
            assert_int_equal(poll(lives, 3, 0), 0);
            kill(victims[rank], SIGKILL);
            assert_int_equal(poll(lives, 3, 20000), 1);
            assert_int_equal(lives[rank].revents, POLLHUP);
            lives[rank].fd = -1;
            waitpid(victims[rank], NULL, 0);
            kill(children[rank], SIGKILL);
        }
        boot_host_free(host);
    }
}

static void the_key_follows_the_option(void **state)
{
    (void)state;
    char plain[BOOT_HOST_KEY_BYTES], again[BOOT_HOST_KEY_BYTES], named[BOOT_HOST_KEY_BYTES];
    assert_int_equal(boot_host_key(plain), SHOAL_OK);
    assert_int_equal(boot_host_key(again), SHOAL_OK);
    assert_string_equal(plain, again);
    setenv("SHOAL_HOST_ID", "elsewhere", 1);
    base_options_reset();
    assert_int_equal(boot_host_key(named), SHOAL_OK);
    assert_string_not_equal(plain, named);
    unsetenv("SHOAL_HOST_ID");
    base_options_reset();
    assert_true(boot_host_name()[0] != '\0');
}

static void too_few_descriptors_is_an_error_that_says_so(void **state)
{
    (void)state;
    nonce++;
    for (int rank = 0; rank < 12; rank++) {
        struct boot_host_options options = options_of(rank, 12, 20000);
        struct rlimit before, few = {.rlim_cur = 16, .rlim_max = 0};
        getrlimit(RLIMIT_NOFILE, &before);
        few.rlim_max = before.rlim_max;
        if (rank == 5)
            setrlimit(RLIMIT_NOFILE, &few);
        start(rank, &options);
        setrlimit(RLIMIT_NOFILE, &before);
    }
    for (int rank = 0; rank < 12; rank++)
        finish(rank);
    for (int rank = 0; rank < 12; rank++) {
        assert_report(rank, SHOAL_ERR_SYSTEM, "ulimit -n");
        if (rank != 5)
            assert_report(rank, SHOAL_ERR_SYSTEM, "local rank 5 (pid ");
    }
}

static int set_up(void **state)
{
    (void)state;
    struct base_shared shared;
    assert_int_equal(base_shared_create("reports", sizeof(struct report) * SIZE_MAX_HERE,
                                        BASE_FORK_SHARES, &shared),
                     SHOAL_OK);
    reports = shared.address;
    net_secret_from_text("the job's secret", secret);
    assert_int_equal(net_random(job, sizeof(job)), SHOAL_OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_many_sizes_meet),
        cmocka_unit_test(a_missing_rank_is_named_on_all),
        cmocka_unit_test(a_missing_lowest_rank_is_a_timeout),
        cmocka_unit_test(a_second_process_of_a_rank_is_told),
        cmocka_unit_test(a_second_lowest_rank_is_told),
        cmocka_unit_test(a_wrong_secret_is_refused),
        cmocka_unit_test(strangers_disturb_nothing),
        cmocka_unit_test(a_killed_member_is_named),
        cmocka_unit_test(a_member_without_memory_is_named_on_all),
        cmocka_unit_test(a_death_shows_at_the_lifeline),
        cmocka_unit_test(the_key_follows_the_option),
        cmocka_unit_test(too_few_descriptors_is_an_error_that_says_so),
    };
    return cmocka_run_group_tests_name("boot host", tests, set_up, NULL);
}
