/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_start_test.c: what can go wrong while ranks become a group: a rank that is taken, a port
 * that is a stranger's, places that can't be reached, wrong and differing options, and limits of
 * memory and descriptors. Each gives a clear error within the deadline and leaves nothing behind.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/holdings.h"
#include "support/scenario.h"
#include "support/skip.h"

#define SLACK_MS    10000 /* a generous upper bound for machines under load */
#define MEETING_MS  3000
#define DECLINED_MS 60000

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* a sanitizer maps terabytes, so the address space can't be limited */
#else
#define SANITIZED false
#endif

static const struct layout three = {"three", 3, 1, PATH_LOCAL};
static const struct layout apart = {"apart", 3, 3, PATH_TCP};
static const struct layout alone = {"alone", 1, 1, PATH_LOCAL};

static enum shoal_status create(int rank, int size, const char *store, shoal_group_t *group)
{
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.store = store;
    options.timeout_ms = MEETING_MS;
    return shoal_group_create(&options, group);
}

/* ---- a rank that is taken
 * ---------------------------------------------------------------------------------------------- */

/* Process 2 comes as rank `variant`, which another process is already; rank 2 comes never. */
static int take_a_rank(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    char mine[64], first[64];
    int taken = board->variant;
    if (rank != 2) {
        atomic_store(&board->stage[rank], (int)getpid());
        EXPECT(create(rank, size, store, &group), SHOAL_ERR_TIMEOUT, "2");
        return 0;
    }
    REQUIRE(board_wait(&board->stage[taken], 1) == 0);
    poll(NULL, 0, 500);
    EXPECT(create(taken, size, store, &group), SHOAL_ERR_RANK_TAKEN, "is taken");
    snprintf(mine, sizeof(mine), "process %d on host host0", (int)getpid());
    snprintf(first, sizeof(first), "process %d on host host0", atomic_load(&board->stage[taken]));
    REQUIRE(expect_text(NULL, (const char *const[]){mine, first, NULL}) == 0);
    return 0;
}

static void test_rank_taken(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        struct scenario scenario = {
            .layout = &three, .variant = taken, .by_address = true, .bare = take_a_rank};
        scenario_run(&scenario);
    }
}

/* ---- a stranger at the port
 * ---------------------------------------------------------------------------------------------- */

enum stranger { SILENT, CHATTY, RUDE, STRANGERS };

/* Listens at the store's port; takes connections and says nothing, or something else, or closes. */
static int be_a_stranger(const char *store, struct board *board)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strchr(store, ':') + 1)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), guests[256], count = 0, on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 64) == 0);
    atomic_store(&board->stage[2], (int)getpid());
    while (atomic_load(&board->go) < 2 && count < 256) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 20) <= 0)
            continue;
        int guest = accept(fd, NULL, NULL);
        if (guest < 0)
            continue;
        if (board->variant == CHATTY &&
            write(guest, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", 40) != 40)
            fprintf(stderr, "the guest does not listen\n");
        if (board->variant == RUDE)
            close(guest);
        else
            guests[count++] = guest;
    }
    while (count > 0)
        close(guests[--count]);
    close(fd);
    return 0;
}

static int meet_a_stranger(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    char pid[32];
    if (rank == 2)
        return be_a_stranger(store, board);
    REQUIRE(board_wait(&board->stage[2], 1) == 0);
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = create(rank, size - 1, store, &group);
    REQUIRE(scenario_since_ms(begun_ns) < MEETING_MS + SLACK_MS);
    atomic_fetch_add(&board->go, 1);
    snprintf(pid, sizeof(pid), "pid %d", atomic_load(&board->stage[2]));
    if (rank == 0) {
        EXPECT(status, SHOAL_ERR_SYSTEM, store + strlen("127.0.0.1"), "in use", pid);
    } else {
        REQUIRE(status == SHOAL_ERR_PEER_UNREACHABLE || status == SHOAL_ERR_PEER_REFUSED);
        EXPECT(status, status, store, "something took the connection");
    }
    return 0;
}

static void test_port_in_use(void **state)
{
    (void)state;
    for (int kind = 0; kind < STRANGERS; kind++) {
        struct scenario scenario = {
            .layout = &three, .variant = kind, .by_address = true, .bare = meet_a_stranger};
        scenario_run(&scenario);
    }
}

/* ---- places that can't be reached
 * ---------------------------------------------------------------------------------------------- */

static int reach_nobody(int rank, int size, const char *store, struct board *board)
{
    static const char *const places[] = {"127.0.0.1:9,[::1]:9", "192.0.2.77:9",
                                         "no-such-host.invalid:9"};
    static const char *const named[][3] = {
        {"127.0.0.1:9", "[::1]:9", "refused"}, {"192.0.2.77:9", "", ""}, {"no-such-host", "", ""}};
    const char *const *pieces = named[board->variant];
    shoal_group_t group = NULL;
    (void)rank;
    (void)size;
    (void)store;
    int64_t begun_ns = scenario_now_ns();
    EXPECT(create(1, 2, places[board->variant], &group), SHOAL_ERR_PEER_UNREACHABLE, pieces[0],
           pieces[1], pieces[2], "host0");
    REQUIRE(scenario_since_ms(begun_ns) < MEETING_MS + SLACK_MS);
    return 0;
}

/* A place that can't be read. */
static int name_no_place(int rank, int size, const char *store, struct board *board)
{
    static const char *const places[] = {"", "host", "host:", "host:99999", "host:x", "::1:80"};
    shoal_group_t group = NULL;
    (void)store;
    (void)board;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        EXPECT(create(rank, size + 1, places[i], &group), SHOAL_ERR_ARGUMENT, "port");
    return 0;
}

static void test_unreachable(void **state)
{
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        struct scenario scenario = {
            .layout = &alone, .variant = variant, .by_address = true, .bare = reach_nobody};
        scenario_run(&scenario);
    }
    struct scenario scenario = {.layout = &alone, .by_address = true, .bare = name_no_place};
    scenario_run(&scenario);
}

/* ---- options
 * ---------------------------------------------------------------------------------------------- */

struct wrong_option {
    const char *variable;
    const char *pieces[3];
};

static const struct wrong_option wrong_options[] = {
    {"SHOAL_TIMOUT_MS=5", {"SHOAL_TIMOUT_MS", "did you mean", "SHOAL_TIMEOUT_MS"}},
    {"SHOAL_EAGERBYTES=5", {"SHOAL_EAGERBYTES", "did you mean", "SHOAL_EAGER_BYTES"}},
    {"SHOAL_TIMEOUT_MS=0", {"SHOAL_TIMEOUT_MS", "1 to", ""}},
    {"SHOAL_TIMEOUT_MS=-5", {"SHOAL_TIMEOUT_MS", "1 to", ""}},
    {"SHOAL_TIMEOUT_MS=99999999999999999999", {"SHOAL_TIMEOUT_MS", "1 to", ""}},
    {"SHOAL_TIMEOUT_MS=soon", {"SHOAL_TIMEOUT_MS", "soon", ""}},
    {"SHOAL_TIMEOUT_MS=10s", {"SHOAL_TIMEOUT_MS", "10s", ""}},
    {"SHOAL_EAGER_BYTES=1G", {"SHOAL_EAGER_BYTES", "1G", ""}},
    {"SHOAL_EAGER_BYTES=12Q", {"SHOAL_EAGER_BYTES", "12Q", ""}},
    {"SHOAL_RING_BYTES=5000", {"SHOAL_RING_BYTES", "5000", ""}},
    {"SHOAL_LOCAL=maybe", {"SHOAL_LOCAL", "maybe", ""}},
    {"SHOAL_LOG=loud", {"SHOAL_LOG", "loud", "warn"}},
    {"SHOAL_ALGORITHM=rign", {"SHOAL_ALGORITHM", "rign", "ring"}},
    {"SHOAL_ALGORITHM=allreduce:nothing", {"SHOAL_ALGORITHM", "nothing", ""}},
    {"SHOAL_ALGORITHM=allredoce:ring", {"SHOAL_ALGORITHM", "allredoce", ""}},
};
#define WRONG_OPTIONS ((int)(sizeof(wrong_options) / sizeof(wrong_options[0])))

static int be_told_of_an_option(int rank, int size, const char *store, struct board *board)
{
    const struct wrong_option *wrong = &wrong_options[board->variant];
    shoal_group_t group = NULL;
    (void)store;
    putenv((char *)(uintptr_t)wrong->variable);
    EXPECT(create(rank, size, NULL, &group), SHOAL_ERR_OPTION, wrong->pieces[0], wrong->pieces[1],
           wrong->pieces[2]);
    REQUIRE(group == NULL);
    return 0;
}

static void test_wrong_options(void **state)
{
    (void)state;
    for (int i = 0; i < WRONG_OPTIONS; i++) {
        struct scenario scenario = {.layout = &alone, .variant = i, .bare = be_told_of_an_option};
        scenario_run(&scenario);
    }
}

/* One rank has an option that the others don't have. */
static const char *const differing[] = {"SHOAL_EAGER_BYTES=4K", "SHOAL_SEGMENT_BYTES=64K",
                                        "SHOAL_ALGORITHM=ring", "SHOAL_REPRODUCIBLE=1",
                                        "SHOAL_RING_BYTES=64K", "SHOAL_CHUNK_BYTES=64K",
                                        "SHOAL_LOCAL=0"};
#define DIFFERING      7
#define DIFFERING_HOST 4 /* from here on they matter only within a host */

static int differ(int rank, int size, const char *store, struct board *board)
{
    struct shoal_store on_board;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    shoal_group_t group = NULL;
    char name[64], who[32], other[32];
    (void)store;
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.user_store = &on_board;
    options.timeout_ms = MEETING_MS;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(differing[board->variant], "="),
             differing[board->variant]);
    snprintf(who, sizeof(who), "rank %d (host host", board->victim);
    snprintf(other, sizeof(other), "rank %d (host host", rank == board->victim ? 0 : rank);
    EXPECT(shoal_group_create(&options, &group), SHOAL_ERR_MISMATCH, name, who, other,
           "on all ranks");
    return 0;
}

static void test_differing_options(void **state)
{
    (void)state;
    for (const struct layout *layout = scenario_layouts; layout->path <= PATH_TCP; layout++)
        for (int i = 0; i < (layout->path == PATH_TCP ? DIFFERING_HOST : DIFFERING); i++) {
            struct scenario scenario = {.layout = layout,
                                        .variant = i,
                                        .victim = 1 + i % 2,
                                        .victim_environment = differing[i],
                                        .bare = differ};
            if (layout->path != PATH_SHM || i + 1 < DIFFERING)
                scenario_run(&scenario);
        }
}

/* One rank cannot take part; all hear why, long before their deadline. */
static int decline(int rank, int size, const char *store, struct board *board)
{
    struct shoal_store on_board;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    shoal_group_t group = NULL;
    char who[64] = "";
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.store = board->variant == 0 ? store : NULL;
    options.user_store = board->variant == 0 ? NULL : &on_board;
    options.timeout_ms = DECLINED_MS;
    if (rank != board->victim)
        snprintf(who, sizeof(who), "rank %d (host host%d) cannot come: ", board->victim,
                 board->victim);
    int64_t begun_ns = scenario_now_ns();
    EXPECT(shoal_group_create(&options, &group), SHOAL_ERR_OPTION, who,
           "SHOAL_INTERFACE=nosuch0: no interface or address here fits");
    REQUIRE(scenario_since_ms(begun_ns) < DECLINED_MS / 2);
    return 0;
}

static void test_a_rank_that_cannot_come(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        for (int victim = 0; victim < 2; victim++) {
            struct scenario scenario = {.layout = &apart,
                                        .variant = variant,
                                        .by_address = variant == 0,
                                        .victim = victim,
                                        .victim_environment = "SHOAL_INTERFACE=nosuch0",
                                        .bare = decline};
            scenario_run(&scenario);
        }
}

/* ---- limits of this process
 * ---------------------------------------------------------------------------------------------- */

static long address_space_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        abort();
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static enum shoal_status create_on_board(int rank, int size, struct board *board,
                                         shoal_group_t *group)
{
    struct shoal_store on_board;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.user_store = size > 1 ? &on_board : NULL;
    options.timeout_ms = MEETING_MS;
    return shoal_group_create(&options, group);
}

/* The victim has too little address space for the shared regions, its own (the default) or, with
 * smaller ones, that of a peer; all hear of it. */
static int have_little_space(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    struct rlimit limit = {.rlim_cur = (rlim_t)address_space_bytes() + (UINT64_C(256) << 20),
                           .rlim_max = RLIM_INFINITY};
    (void)store;
    if (rank == board->victim)
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    int64_t begun_ns = scenario_now_ns();
    EXPECT(create_on_board(rank, size, board, &group), SHOAL_ERR_MEMORY, "SHOAL_SHARED_BYTES");
    REQUIRE(scenario_since_ms(begun_ns) < MEETING_MS + SLACK_MS);
    return 0;
}

/* With what the message proposes it works. */
static int have_enough_space(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    struct rlimit limit = {.rlim_cur = (rlim_t)address_space_bytes() + (UINT64_C(512) << 20),
                           .rlim_max = RLIM_INFINITY};
    (void)store;
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(create_on_board(rank, size, board, &group));
    CHECK(scenario_sum(group, 100000, false));
    return expect_status(NULL, shoal_group_free(group), SHOAL_OK, "free");
}

static void test_address_space(void **state)
{
    (void)state;
    if (SANITIZED)
        skip_because("a sanitizer needs the address space");
    for (int victim = 0; victim < 3; victim++) {
        struct scenario scenario = {.layout = &three, .victim = victim, .bare = have_little_space};
        scenario_run(&scenario);
        scenario.environment[0] = "SHOAL_SHARED_BYTES=160M";
        scenario_run(&scenario);
    }
    struct scenario scenario = {
        .layout = &three, .environment = {"SHOAL_SHARED_BYTES=64M"}, .bare = have_enough_space};
    scenario_run(&scenario);
}

/* The number that the next descriptor will have. */
static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

/* Walks the number of descriptors that may be open: too few is an error, never a crash or a leak.
 * In the end it works. */
static int have_few_descriptors_alone(int rank, int size, const char *store, struct board *board)
{
    struct rlimit limit;
    (void)store;
    (void)board;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int before = open_descriptors(), errors = 0;
    size_t blocks = base_memory_blocks();
    for (int more = 0;; more++) {
        shoal_group_t group = NULL;
        struct rlimit few = {.rlim_cur = (rlim_t)(next_descriptor() + more),
                             .rlim_max = limit.rlim_max};
        REQUIRE(more < 64 && setrlimit(RLIMIT_NOFILE, &few) == 0);
        enum shoal_status status = create_on_board(rank, size, board, &group);
        if (status != SHOAL_OK) {
            EXPECT(status, SHOAL_ERR_SYSTEM, "Too many open files");
            errors++;
        }
        REQUIRE(shoal_group_free(group) == SHOAL_OK);
        REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        REQUIRE(open_descriptors() == before && base_memory_blocks() == blocks);
        if (status == SHOAL_OK)
            break;
    }
    REQUIRE(errors > 0);
    return 0;
}

/* One of several ranks has too few; `variant` more than it has open. */
static int have_few_descriptors(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    struct rlimit limit;
    (void)store;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    struct rlimit few = {.rlim_cur = (rlim_t)(next_descriptor() + board->variant),
                         .rlim_max = limit.rlim_max};
    if (rank == board->victim)
        REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = create_on_board(rank, size, board, &group);
    REQUIRE(scenario_since_ms(begun_ns) < MEETING_MS + SLACK_MS);
    if (status == SHOAL_OK)
        status = scenario_sum(group, 10000, false);
    if (status != SHOAL_OK)
        REQUIRE(shoal_last_error(NULL)[0] != '\0');
    if (rank == board->victim && status != SHOAL_OK)
        REQUIRE(status == SHOAL_ERR_SYSTEM || status >= SHOAL_ERR_PEER_LOST);
    enum shoal_status freed = shoal_group_free(group);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return expect_status(NULL, freed, SHOAL_OK, "free");
}

static void test_descriptors(void **state)
{
    (void)state;
    struct scenario scenario = {.layout = &alone, .bare = have_few_descriptors_alone};
    scenario_run(&scenario);
    for (const struct layout *layout = scenario_layouts; layout->path <= PATH_TCP; layout++)
        for (int more = 0; more < 32; more += 3) {
            scenario = (struct scenario){.layout = layout,
                                         .variant = more,
                                         .victim = more % 2,
                                         .bare = have_few_descriptors};
            scenario_run(&scenario);
        }
}

/* ---- shared memory
 * ---------------------------------------------------------------------------------------------- */

#define BIG (UINT64_C(3) << 20)

/* /dev/shm with room for 64 KiB, and that is full. */
static int have_no_dev_shm(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    void *memory = NULL;
    char page[4096] = {1};
    (void)store;
    REQUIRE(unshare(CLONE_NEWNS) == 0);
    REQUIRE(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    REQUIRE(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0);
    FILE *file = fopen("/dev/shm/full", "w");
    REQUIRE(file);
    while (fwrite(page, sizeof(page), 1, file) == 1 && fflush(file) == 0) {}
    fclose(file);
    CHECK(create_on_board(rank, size, board, &group));
    CHECK(shoal_alloc(group, BIG, &memory));
    memset(memory, rank, BIG);
    CHECK(scenario_sum(group, 10, false));
    CHECK(scenario_sum(group, BIG / 8, false));
    CHECK(scenario_sum(group, BIG / 8, true));
    CHECK(shoal_free(group, memory));
    return expect_status(NULL, shoal_group_free(group), SHOAL_OK, "free");
}

static void test_dev_shm_is_full(void **state)
{
    (void)state;
    if (!scenario_isolated())
        skip_because("needs root for a mount namespace");
    struct scenario scenario = {.layout = &scenario_layouts[0], .bare = have_no_dev_shm};
    scenario_run(&scenario);
    scenario.layout = &scenario_layouts[1];
    scenario_run(&scenario);
}

/* ---- again and again
 * ---------------------------------------------------------------------------------------------- */

#define CYCLES 50

/* Groups come and go: descriptors, threads and memory stay where they were after the first ones. */
static int come_and_go(int rank, int size, const char *store, struct board *board)
{
    int descriptors = 0, threads = 0;
    size_t blocks = 0;
    (void)board;
    for (int i = 0; i < CYCLES; i++) {
        shoal_group_t group = NULL;
        CHECK(create(rank, size, store, &group));
        CHECK(scenario_sum(group, 1000, i % 2));
        CHECK(shoal_group_free(group));
        if (i == 1) {
            descriptors = open_descriptors();
            threads = running_threads();
            blocks = base_memory_blocks();
        }
    }
    if (base_memory_blocks() > blocks)
        fprintf(stderr, "%zu blocks after the second group, %zu after the last\n", blocks,
                base_memory_blocks());
    REQUIRE(descriptors_left(descriptors) <= descriptors && threads_left(threads) <= threads);
    REQUIRE(rank == 0 || base_memory_blocks() <= blocks);
    return 0;
}

static void test_cycles(void **state)
{
    (void)state;
    scenario_on_every_layout((struct scenario){.by_address = true, .bare = come_and_go});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_taken),        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_unreachable),       cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_differing_options), cmocka_unit_test(test_a_rank_that_cannot_come),
        cmocka_unit_test(test_address_space),     cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_dev_shm_is_full),   cmocka_unit_test(test_cycles),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
