/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failures_arena_test.c: memory from shoal_alloc that is not as an operation would like it: buffers
 * of which some lie there and some don't, or that end outside; a region that is full; limits on
 * memory. The call says what is missing, or the operation goes through the stages and gives the
 * same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/operation.h"
#include "support/scenario.h"
#include "support/skip.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define MIB   ((size_t)1 << 20)
#define RANKS 3
#define COUNT 10007 /* elements of a part: 39 KiB, above what is staged in any case */
#define WHOLE (RANKS * COUNT)
#define GUARD -77.0f

static const struct layout three = {"local", RANKS, 1, PATH_LOCAL};

/* ---- one operation of each kind, and its bits
 * ---------------------------------------------------------------------------------------------- */

enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL, GATHER, SCATTER };
#define KINDS 8
#define ROOT  1

/* This rank's input. Sums of these depend on their order. */
static float values[WHOLE];

static void make_values(int rank)
{
    struct operation_options options = {.dtype = SHOAL_F32, .values = VALUES_ANY, .seed = 3};
    values_fill(&options, rank, values, WHOLE);
}

static enum shoal_status start(enum kind kind, float *in, float *out, shoal_group_t group,
                               shoal_request_t *request)
{
    switch (kind) {
    case ALLREDUCE: return shoal_allreduce(in, out, WHOLE, SHOAL_F32, SHOAL_SUM, group, request);
    case REDUCE: return shoal_reduce(in, out, WHOLE, SHOAL_F32, SHOAL_SUM, ROOT, group, request);
    case REDUCE_SCATTER:
        return shoal_reduce_scatter(in, out, COUNT, SHOAL_F32, SHOAL_AVG, group, request);
    case ALLGATHER: return shoal_allgather(in, out, COUNT, SHOAL_F32, group, request);
    case BROADCAST: return shoal_broadcast(in, WHOLE, SHOAL_F32, ROOT, group, request);
    case ALLTOALL: return shoal_alltoall(in, out, COUNT, SHOAL_F32, group, request);
    case GATHER: return shoal_gather(in, out, COUNT, SHOAL_F32, ROOT, group, request);
    default: return shoal_scatter(in, out, COUNT, SHOAL_F32, ROOT, group, request);
    }
}

/* Which buffers must lie in an arena for it to go directly: docs/local.md. */
static bool needs(enum kind kind, int rank, bool output)
{
    switch (kind) {
    case ALLREDUCE: return true;
    case REDUCE: return !output || rank == ROOT;
    case BROADCAST:
    case SCATTER: return !output && rank == ROOT;
    case GATHER: return !output && rank != ROOT;
    default: return !output;
    }
}

static enum shoal_status operate(enum kind kind, float *in, float *out, bool later,
                                 shoal_group_t group)
{
    shoal_request_t request = NULL;
    memcpy(in, values, sizeof(values));
    for (uint64_t i = 0; i <= WHOLE; i++)
        out[i] = GUARD;
    in[WHOLE] = GUARD;
    enum shoal_status status = start(kind, in, out, group, later ? &request : NULL);
    return status == SHOAL_OK && request ? shoal_request_wait(&request, -1) : status;
}

/* Both buffers are as after the same operation on private memory. */
static int same_bits(enum kind kind, float *const private[2], float *in, float *out, bool later,
                     shoal_group_t group)
{
    size_t bytes = (WHOLE + 1) * sizeof(float);
    CHECK(operate(kind, in, out, later, group));
    REQUIRE(memcmp(private[0], in, bytes) == 0);
    REQUIRE(memcmp(private[1], out, bytes) == 0);
    return 0;
}

static uint64_t direct_bytes(shoal_group_t group)
{
    struct shoal_counters counters = SHOAL_COUNTERS_INIT;
    if (shoal_group_counters(group, &counters) != SHOAL_OK)
        abort();
    return counters.direct_bytes;
}

static float *private_floats(void)
{
    float *floats = malloc((WHOLE + 1) * sizeof(float));
    if (!floats)
        abort();
    return floats;
}

/* ---- partly in arenas
 * ---------------------------------------------------------------------------------------------- */

#define PLACES (1 << (2 * RANKS)) /* a bit for each rank's input and output */

static bool lies_shared(int places, int rank, bool output)
{
    return places >> (2 * rank + output) & 1;
}

static bool is_direct(enum kind kind, int places)
{
    bool direct = true;
    for (int rank = 0; rank < RANKS; rank++)
        for (int output = 0; output < 2; output++)
            direct &= !needs(kind, rank, output) || lies_shared(places, rank, output);
    return direct;
}

/* Each buffer of each rank in an arena or not, in every combination: directly if all that must lie
 * there do, else not, and the bits are the same. */
static int lie_partly(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    float *private[2] = {private_floats(), private_floats()};
    float *others[2] = {private_floats(), private_floats()};
    void *shared[2];
    (void)board;
    make_values(rank);
    for (int i = 0; i < 2; i++)
        CHECK(shoal_alloc(group, (WHOLE + 1) * sizeof(float), &shared[i]));
    for (enum kind kind = 0; kind < KINDS; kind++) {
        CHECK(operate(kind, private[0], private[1], false, group));
        for (int places = 0; places < PLACES; places++) {
            float *in = lies_shared(places, rank, false) ? shared[0] : others[0];
            float *out = lies_shared(places, rank, true) ? shared[1] : others[1];
            uint64_t before = direct_bytes(group);
            REQUIRE(same_bits(kind, private, in, out, places % 3 == 0, group) == 0);
            REQUIRE((direct_bytes(group) > before) == is_direct(kind, places));
        }
    }
    CHECK(shoal_barrier(group, NULL));
    for (int i = 0; i < 2; i++) {
        CHECK(shoal_free(group, shared[i]));
        free(private[i]);
        free(others[i]);
    }
    return 0;
}

static void test_partly_in_arenas(void **state)
{
    (void)state;
    scenario_run(&(struct scenario){
        .layout = &three, .act = lie_partly, .victim = -1, .timeout_ms = 60000, .deadline_s = 300});
}

/* ---- half outside
 * ---------------------------------------------------------------------------------------------- */

#define BEHIND_BYTES MIB
#define HOLE_BYTES   (256 * MIB) /* of addresses: fits in no gap between libraries */

/* The end of this rank's region; NULL if /proc does not show it. */
static char *region_end(const void *inside)
{
    char line[512];
    unsigned long start, end = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps) &&
           (sscanf(line, "%lx-%lx", &start, &end) != 2 || (uintptr_t)inside < start ||
            (uintptr_t)inside >= end))
        end = 0;
    if (maps)
        fclose(maps);
    return (char *)end; // NOLINT: an address as text
}

/* A buffer that ends behind the region, amid its first part; NULL if other memory lies there. */
static float *half_outside(const void *inside)
{
    char *end = region_end(inside);
    if (!end || mmap(end, BEHIND_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != end)
        return NULL;
    return (float *)(void *)(end - COUNT * sizeof(float) / 2 / 64 * 64);
}

/* All buffers lie in arenas, but the victim's input or output ends outside. */
static int lie_half_outside(shoal_group_t group, struct board *board)
{
    int rank = shoal_group_rank(group);
    bool victim = rank == board->victim;
    float *private[2] = {private_floats(), private_floats()};
    void *shared[2];
    make_values(rank);
    for (int i = 0; i < 2; i++)
        CHECK(shoal_alloc(group, (WHOLE + 1) * sizeof(float), &shared[i]));
    float *straddling = victim ? half_outside(shared[0]) : NULL;
    if (victim)
        atomic_store(&board->go, straddling ? 1 : 2);
    REQUIRE(board_wait(&board->go, 1) == 0);
    for (enum kind kind = 0; kind < KINDS && atomic_load(&board->go) == 1; kind++) {
        CHECK(operate(kind, private[0], private[1], false, group));
        for (int which = 0; which < 4; which++) {
            bool output = which % 2;
            float *in = victim && !output ? straddling : shared[0];
            float *out = victim && output ? straddling : shared[1];
            uint64_t before = direct_bytes(group);
            REQUIRE(same_bits(kind, private, in, out, which / 2, group) == 0);
            REQUIRE((direct_bytes(group) > before) == !needs(kind, board->victim, output));
        }
    }
    CHECK(shoal_barrier(group, NULL));
    for (int i = 0; i < 2; i++) {
        CHECK(shoal_free(group, shared[i]));
        free(private[i]);
    }
    return 0;
}

/* Regions are mapped below what is there already: this makes a hole above them. */
static int make_a_hole(int rank, int size, const char *store, struct board *board)
{
    shoal_group_t group = NULL;
    struct shoal_store on_board;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    void *hole = mmap(NULL, HOLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)store;
    board_store(board, &on_board);
    options.rank = rank;
    options.size = size;
    options.user_store = &on_board;
    CHECK(shoal_group_create(&options, &group));
    REQUIRE(hole != MAP_FAILED && munmap(hole, HOLE_BYTES) == 0);
    REQUIRE(lie_half_outside(group, board) == 0);
    enum shoal_status status = shoal_group_free(group);
    group = NULL;
    CHECK(status);
    return 0;
}

static bool had_room;

static void look_whether_there_was_room(struct board *board, const pid_t *pids)
{
    (void)pids;
    board_wait(&board->go, 1);
    had_room = atomic_load(&board->go) == 1;
}

static void test_half_outside(void **state)
{
    int tried = 0;
    (void)state;
    for (int victim = 0; victim < RANKS; victim++) {
        scenario_run(&(struct scenario){.layout = &three,
                                        .victim = victim,
                                        .environment = {"SHOAL_SHARED_BYTES=1G"},
                                        .bare = make_a_hole,
                                        .meanwhile = look_whether_there_was_room});
        tried += had_room;
    }
    if (tried == 0)
        skip_because("no room behind a region in this address space");
}

/* ---- full
 * ---------------------------------------------------------------------------------------------- */

#define PIECES_MAX 64

/* Takes pieces until an error, whose text says all of it. */
static int take_all(shoal_group_t group, size_t piece_bytes, const char *why, const char *what,
                    void **pieces, int *count)
{
    enum shoal_status status = SHOAL_OK;
    *count = 0;
    while (*count < PIECES_MAX) {
        void *memory = pieces;
        status = shoal_alloc(group, piece_bytes, &memory);
        if (status != SHOAL_OK) {
            REQUIRE(memory == pieces); /* written only on success */
            break;
        }
        pieces[(*count)++] = memory;
        memset(memory, 1, piece_bytes);
    }
    EXPECT(status, SHOAL_ERR_MEMORY, "shared memory", why, what);
    return 0;
}

static int sum_in(shoal_group_t group, float *numbers, bool directly)
{
    float size = (float)shoal_group_size(group);
    uint64_t before = direct_bytes(group);
    for (uint64_t i = 0; i < WHOLE; i++)
        numbers[i] = (float)(i % 7);
    CHECK(shoal_allreduce(numbers, numbers, WHOLE, SHOAL_F32, SHOAL_SUM, group, NULL));
    for (uint64_t i = 0; i < WHOLE; i++)
        REQUIRE(numbers[i] == size * (float)(i % 7));
    REQUIRE((direct_bytes(group) > before) == directly);
    return 0;
}

/* On all ranks, or on one of them. What there is goes on; what is given back can be had again. */
static int fill_the_region(shoal_group_t group, struct board *board)
{
    static float numbers[WHOLE];
    void *pieces[PIECES_MAX];
    int count = 0, rank = shoal_group_rank(group);
    shoal_group_t other = NULL;
    if (board->variant == 0 || rank == board->victim)
        REQUIRE(take_all(group, MIB, "the region of 33554432 bytes is full", "SHOAL_SHARED_BYTES",
                         pieces, &count) == 0);
    else
        CHECK(shoal_alloc(group, MIB, &pieces[count++]));
    REQUIRE(shoal_group_health(group) == SHOAL_OK && count > 0);
    REQUIRE(sum_in(group, pieces[count - 1], true) == 0);
    REQUIRE(sum_in(group, rank == board->victim ? numbers : pieces[0], false) == 0);
    CHECK(scenario_sum(group, 3 * MIB, true));
    if (board->variant == 0)
        EXPECT(shoal_group_split(group, 0, 0, &other), SHOAL_ERR_MEMORY, "SHOAL_SHARED_BYTES");
    for (int i = 0; i < count; i++)
        CHECK(shoal_free(group, pieces[i]));
    CHECK(shoal_alloc(group, 8 * MIB, &pieces[0]));
    CHECK(shoal_free(group, pieces[0]));
    CHECK(shoal_group_split(group, 0, 0, &other));
    CHECK(scenario_sum(other, COUNT, false));
    CHECK(shoal_group_free(other));
    return 0;
}

static void test_full(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        scenario_run(&(struct scenario){.layout = &three,
                                        .variant = variant,
                                        .victim = 1,
                                        .environment = {"SHOAL_SHARED_BYTES=32M"},
                                        .act = fill_the_region});
}

/* ---- limits
 * ---------------------------------------------------------------------------------------------- */

/* No address space is left once the group stands: nothing of what it does needs more. */
static int run_out_of_addresses(shoal_group_t group, struct board *board)
{
    static float numbers[WHOLE];
    struct rlimit before, none;
    void *memory = NULL;
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    none = (struct rlimit){.rlim_cur = MIB, .rlim_max = before.rlim_max};
    if (shoal_group_rank(group) == board->victim)
        REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    CHECK(shoal_alloc(group, 16 * MIB, &memory));
    REQUIRE(sum_in(group, memory, true) == 0);
    REQUIRE(sum_in(group, numbers, false) == 0);
    CHECK(shoal_free(group, memory));
    CHECK(shoal_barrier(group, NULL));
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    return 0;
}

static void test_no_address_space_is_left(void **state)
{
    (void)state;
    if (SANITIZED)
        skip_because("a sanitizer needs the address space");
    scenario_run(&(struct scenario){.layout = &three, .act = run_out_of_addresses, .victim = 1});
}

#define GROUP_LIMIT "268435456"
#define PIECE_BYTES (16 * MIB)

static char cgroup[96];

static bool write_to(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", cgroup, name);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

/* A control group of its own with a limit; false where this process may not make one. */
static bool make_cgroup(void)
{
    static const char *const mounts[2] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
    static const char *const limits[2] = {"memory.limit_in_bytes", "memory.max"};
    for (int i = 0; i < 2; i++) {
        snprintf(cgroup, sizeof(cgroup), "%s/shoal-test-%d", mounts[i], (int)getpid());
        if (mkdir(cgroup, 0700) != 0)
            continue;
        if (write_to(limits[i], GROUP_LIMIT))
            return true;
        rmdir(cgroup);
    }
    return false;
}

/* The ranks take more than their control group allows: an error, and no rank is killed. */
static int reach_the_limit(shoal_group_t group, struct board *board)
{
    static float numbers[WHOLE];
    void *pieces[PIECES_MAX];
    char self[16];
    int count = 0, rank = shoal_group_rank(group);
    snprintf(self, sizeof(self), "%d", (int)getpid());
    REQUIRE(write_to("cgroup.procs", self));
    CHECK(shoal_alloc(group, WHOLE * sizeof(float), &pieces[count]));
    REQUIRE(sum_in(group, pieces[count++], true) == 0);
    REQUIRE(sum_in(group, numbers, false) == 0); /* what that takes is there from now on */
    if (rank == board->victim)
        REQUIRE(take_all(group, PIECE_BYTES, "control group", "MiB of memory left", pieces + 1,
                         &count) == 0);
    CHECK(shoal_barrier(group, NULL));
    EXPECT(shoal_alloc(group, 2 * PIECE_BYTES, &pieces[PIECES_MAX - 1]), SHOAL_ERR_MEMORY,
           "control group");
    REQUIRE(rank != board->victim || count > 2);
    REQUIRE(sum_in(group, pieces[0], true) == 0);
    REQUIRE(sum_in(group, numbers, false) == 0);
    return 0;
}

static void test_control_group(void **state)
{
    (void)state;
    if (SANITIZED)
        skip_because("a sanitizer's own memory counts too");
    if (!scenario_isolated() || !make_cgroup())
        skip_because("this process may not make a control group with a limit on memory");
    scenario_run(&(struct scenario){.layout = &three,
                                    .victim = 1,
                                    .environment = {"SHOAL_SHARED_BYTES=1G"},
                                    .act = reach_the_limit});
}

/* Also after a failure. */
static int remove_cgroup(void **state)
{
    (void)state;
    return access(cgroup, F_OK) == 0 ? rmdir(cgroup) : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partly_in_arenas),
        cmocka_unit_test(test_half_outside),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_no_address_space_is_left),
        cmocka_unit_test_teardown(test_control_group, remove_cgroup),
    };
    return cmocka_run_group_tests(tests, scenario_isolate, NULL);
}
