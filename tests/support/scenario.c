/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.c: see scenario.h. */
#include "support/scenario.h"

#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "support/holdings.h"

const struct layout scenario_layouts[] = {
    {"local", 3, 1, PATH_LOCAL}, {"shm", 3, 1, PATH_SHM},  {"tcp", 3, 3, PATH_TCP},
    {"mixed", 4, 2, PATH_MIXED}, {NULL, 0, 0, PATH_LOCAL},
};

/* A process remembers where it met others, for the numbers of its meetings; who serves there goes
 * on serving, and keeps what was said in each meeting. */
#define REMEMBERED_BLOCKS  2
#define LAST_LOOK_MS       5000
#define SERVER_BLOCKS      1000
#define SERVER_DESCRIPTORS 8
#define SERVER_THREADS     1

/* ---- time
 * ---------------------------------------------------------------------------------------------- */

int64_t scenario_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t scenario_since_ms(int64_t then_ns)
{
    return (scenario_now_ns() - then_ns) / 1000000;
}

int board_wait(atomic_int *word, int value)
{
    int64_t begun_ns = scenario_now_ns();
    while (atomic_load(word) < value) {
        if (scenario_since_ms(begun_ns) > 60000) {
            fprintf(stderr, "nobody set the word to %d\n", value);
            return 1;
        }
        poll(NULL, 0, 1);
    }
    return 0;
}

void scenario_stop_victim(struct board *board, const pid_t *pids)
{
    for (int rank = 0; rank < board->size; rank++)
        board_wait(&board->stage[rank], 1);
    kill(pids[board->victim], SIGSTOP);
    atomic_store(&board->go, 1);
    for (int rank = 0; rank < board->size; rank++)
        if (rank != board->victim)
            board_wait(&board->stage[rank], 2);
    kill(pids[board->victim], SIGCONT);
    atomic_store(&board->go, 2);
}

int scenario_let_victim_go(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    atomic_store(&board->stage[rank], 1);
    for (int i = 0; i < board->size && rank == board->victim; i++)
        if (board_wait(&board->stage[i], 1))
            return 1;
    return 0;
}

/* ---- the board as a store
 * ---------------------------------------------------------------------------------------------- */

static void lock(struct board_store *store)
{
    while (atomic_flag_test_and_set(&store->lock))
        sched_yield();
}

static int find_entry(struct board_store *store, const char *key)
{
    int at = 0, count = atomic_load(&store->count);
    while (at < count && strcmp(store->entries[at].key, key) != 0)
        at++;
    return at < count ? at : -1;
}

static int store_set(void *user, const char *key, const void *value, size_t bytes)
{
    struct board_store *store = user;
    int at = atomic_load(&store->count);
    if (at == 4 * PROCESSES_MAX || bytes > sizeof(store->entries[0].value))
        return -1;
    lock(store);
    at = atomic_load(&store->count);
    struct board_entry *entry = &store->entries[at];
    snprintf(entry->key, sizeof(entry->key), "%s", key);
    memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    atomic_store(&store->count, at + 1);
    atomic_flag_clear(&store->lock);
    return 0;
}

static int store_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
                     int64_t timeout_ms)
{
    struct board_store *store = user;
    int64_t begun_ns = scenario_now_ns();
    int at;
    while ((at = find_entry(store, key)) < 0) {
        if (scenario_since_ms(begun_ns) >= timeout_ms)
            return 1;
        poll(NULL, 0, 1);
    }
    *bytes = store->entries[at].bytes;
    memcpy(value, store->entries[at].value, *bytes < capacity ? *bytes : capacity);
    return 0;
}

void board_store(struct board *board, struct shoal_store *out)
{
    *out = (struct shoal_store){
        .struct_bytes = sizeof(*out), .user = &board->store, .set = store_set, .get = store_get};
}

/* ---- a rank
 * ------------------------------------------------------------------------------------------------
 */

enum shoal_status scenario_sum(shoal_group_t group, uint64_t count, bool later)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    int64_t *in = malloc((count + 1) * sizeof(*in)), *out = malloc((count + 1) * sizeof(*out));
    shoal_request_t request = NULL;
    if (!in || !out)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        in[i] = (int64_t)((uint64_t)(rank + 1) * (i % 1000 + 1));
        out[i] = -1;
    }
    enum shoal_status status =
        shoal_allreduce(in, out, count, SHOAL_I64, SHOAL_SUM, group, later ? &request : NULL);
    if (status == SHOAL_OK && later)
        status = shoal_request_wait(&request, -1);
    for (uint64_t i = 0; i < count && status == SHOAL_OK; i++)
        if (out[i] != (int64_t)((uint64_t)(size * (size + 1) / 2) * (i % 1000 + 1))) {
            fprintf(stderr, "out[%llu] of %llu is %lld\n", (unsigned long long)i,
                    (unsigned long long)count, (long long)out[i]);
            status = SHOAL_ERR_INTERNAL;
        }
    free(in);
    free(out);
    return status;
}

void scenario_options(const struct scenario *scenario, int rank, const char *store,
                      struct shoal_group_options *options)
{
    *options = (struct shoal_group_options)SHOAL_GROUP_OPTIONS_INIT;
    options->rank = rank;
    options->size = scenario->layout->size;
    options->store = store;
    options->timeout_ms = scenario->timeout_ms > 0 ? scenario->timeout_ms : 20000;
}

struct act {
    const struct scenario *scenario;
    struct board *board;
};

static bool is_victim(const struct scenario *scenario, int rank)
{
    return rank == scenario->victim || (scenario->second > 0 && rank == scenario->second);
}

static void be_on_a_host(const struct scenario *scenario, int rank)
{
    const struct layout *layout = scenario->layout;
    char host[32];
    snprintf(host, sizeof(host), "host%d", rank * layout->hosts / layout->size);
    setenv("SHOAL_HOSTNAME", host, 1);
    if (layout->hosts > 1)
        setenv("SHOAL_HOST_ID", host, 1);
    if (layout->path == PATH_SHM)
        setenv("SHOAL_LOCAL", "0", 1);
    for (int i = 0; i < SCENARIO_VARIABLES && scenario->environment[i]; i++)
        putenv((char *)(uintptr_t)scenario->environment[i]);
    if (is_victim(scenario, rank) && scenario->victim_environment)
        putenv((char *)(uintptr_t)scenario->victim_environment);
}

static int with_group(const struct act *act, int rank, const char *store)
{
    struct shoal_group_options options;
    shoal_group_t group = NULL;
    struct shoal_store on_board;
    scenario_options(act->scenario, rank, store, &options);
    board_store(act->board, &on_board);
    if (!act->scenario->by_address) {
        options.store = NULL;
        options.user_store = &on_board;
    }
    CHECK(shoal_group_create(&options, &group));
    REQUIRE(act->scenario->act(group, act->board) == 0);
    if (act->scenario->victim_stays && is_victim(act->scenario, rank))
        return 0;
    int64_t begun_ns = scenario_now_ns();
    enum shoal_status status = shoal_group_free(group);
    group = NULL;
    CHECK(status);
    REQUIRE(scenario_since_ms(begun_ns) < 15000);
    return 0;
}

struct holdings {
    size_t blocks;
    int descriptors, threads;
};

static int gave_all_back(const struct holdings *before, bool serves)
{
    int threads_allowed = serves ? SERVER_THREADS : 0;
    int more_threads = threads_left(before->threads + threads_allowed) - before->threads;
    size_t more_blocks = base_memory_blocks() - before->blocks;
    int more_descriptors = open_descriptors() - before->descriptors;
    if (more_blocks <= REMEMBERED_BLOCKS + (serves ? SERVER_BLOCKS : 0) && more_descriptors >= 0 &&
        more_descriptors <= (serves ? SERVER_DESCRIPTORS : 0) && more_threads >= 0 &&
        more_threads <= threads_allowed)
        return 0;
    fprintf(stderr, "left: %zu blocks of memory, %d descriptors, %d threads\n", more_blocks,
            more_descriptors, more_threads);
    return 1;
}

static int rank_main(int rank, int size, const char *store, void *user)
{
    const struct act *act = user;
    be_on_a_host(act->scenario, rank);
    struct holdings before = {base_memory_blocks(), open_descriptors(), running_threads()};
    if (act->scenario->bare) {
        REQUIRE(act->scenario->bare(rank, size, store, act->board) == 0);
    } else {
        REQUIRE(with_group(act, rank, store) == 0);
    }
    if (act->scenario->victim_stays && is_victim(act->scenario, rank))
        return 0;
    REQUIRE(gave_all_back(&before, rank == 0 && act->scenario->by_address) == 0);
    return 0;
}

/* ---- what is left behind
 * -------------------------------------------------------------------------------------- */

static bool isolated;

bool scenario_isolated(void)
{
    return isolated;
}

static bool loopback_up(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return up;
}

int scenario_isolate(void **state)
{
    (void)state;
    if (geteuid() != 0 || unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC) != 0) {
        print_message(
            "not root: files, sockets and shared memory left behind are not looked for\n");
        return 0;
    }
    if (!loopback_up() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/tmp", "tmpfs", 0, "size=64m") != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0)
        return -1;
    isolated = true;
    return 0;
}

/* Names in a folder that is empty but for them. */
static void assert_empty(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fail_msg("%s/%s is left behind", path, entry->d_name);
    closedir(folder);
}

static bool find_socket(const char *path, const char *mark, char line[512])
{
    bool found = false;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (!found && fgets(line, 512, file))
        found = strstr(line, mark) != NULL;
    fclose(file);
    return found;
}

/* Children of ranks may be about to end: they get a moment. */
static void assert_no_socket(const char *path, const char *mark)
{
    char line[512];
    for (int tries = 0; find_socket(path, mark, line); tries++) {
        if (tries == LAST_LOOK_MS)
            fail_msg("a socket is left behind: %s", line);
        poll(NULL, 0, 1);
    }
}

/* TIME_WAIT is the kernel's, not a socket of a process: only listeners and standing connections. */
static void assert_nothing_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    if (!isolated)
        return;
    assert_empty("/tmp");
    assert_empty("/dev/shm");
    assert_no_socket("/proc/net/unix", "@shoal");
    assert_no_socket("/proc/net/tcp", " 0A ");
    assert_no_socket("/proc/net/tcp6", " 0A ");
    assert_no_socket("/proc/net/tcp", " 01 ");
    assert_no_socket("/proc/net/tcp6", " 01 ");
}

/* ---- the run
 * -----------------------------------------------------------------------------------------------
 */

static void print_ranks(const struct scenario *scenario, const struct processes *run)
{
    print_message("layout %s, variant %d, victim %d:\n", scenario->layout->name, scenario->variant,
                  scenario->victim);
    for (int rank = 0; rank < run->size; rank++)
        print_message("  rank %d ended with %d:\n%s\n", rank, run->exit_codes[rank],
                      run->output[rank]);
}

void scenario_run(const struct scenario *scenario)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    board->size = scenario->layout->size;
    board->victim = scenario->victim;
    board->second = scenario->second;
    board->variant = scenario->variant;
    struct act act = {scenario, board};
    struct processes run = {.size = scenario->layout->size,
                            .bare = rank_main,
                            .user = &act,
                            .deadline_s = scenario->deadline_s};
    processes_start(&run);
    if (scenario->meanwhile)
        scenario->meanwhile(board, run.pids);
    processes_wait(&run);
    bool good = true;
    for (int rank = 0; rank < run.size; rank++)
        good &= run.exit_codes[rank] == (is_victim(scenario, rank) ? scenario->victim_code : 0);
    if (!good)
        print_ranks(scenario, &run);
    processes_release(&run);
    munmap(board, sizeof(*board));
    assert_true(good);
    assert_nothing_left();
}

void scenario_on_every_layout(struct scenario scenario)
{
    for (scenario.layout = scenario_layouts; scenario.layout->size > 0; scenario.layout++)
        scenario_run(&scenario);
}
