/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_test.c: all ways in which processes become a group: a store's address (IPv4, IPv6), the
 * environment, a unique id carried by hand, the caller's own store; several root groups in one
 * process; many ranks; and counts beyond 2^31.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/holdings.h"
#include "support/processes.h"
#include "support/skip.h"

/* The sum of rank + 1 over all ranks. */
static int sum_of_ranks(shoal_group_t group)
{
    int size = shoal_group_size(group);
    int64_t sum = shoal_group_rank(group) + 1;
    CHECK(shoal_allreduce(&sum, &sum, 1, SHOAL_I64, SHOAL_SUM, group, NULL));
    REQUIRE(sum == size * (size + 1) / 2);
    return 0;
}

static int join(const struct shoal_group_options *options)
{
    shoal_group_t group = NULL;
    CHECK(shoal_group_create(options, &group));
    REQUIRE(sum_of_ranks(group) == 0);
    CHECK(shoal_group_free(group));
    return 0;
}

/* ---- address and environment
 * --------------------------------------------------------------------------------- */

static int by_ipv6(int rank, int size, const char *store, void *user)
{
    (void)user;
    char address[64];
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    snprintf(address, sizeof(address), "[::1]:%s", strchr(store, ':') + 1);
    options.rank = rank;
    options.size = size;
    options.store = address;
    return join(&options);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* Three times in a row: each meeting at the same address has keys of its own. */
static int by_environment(int rank, int size, const char *store, void *user)
{
    (void)user;
    set_number("SHOAL_RANK", rank);
    set_number("SHOAL_SIZE", size);
    setenv("SHOAL_STORE", store, 1);
    for (int i = 0; i < 3; i++)
        REQUIRE(join(NULL) == 0);
    return 0;
}

#define GUESSABLE "to keep them out set SHOAL_SECRET"

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

/* As torchrun and others set them. */
static int by_torch_names(int rank, int size, const char *store, void *user)
{
    (void)user;
    set_number("RANK", rank);
    set_number("WORLD_SIZE", size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", strchr(store, ':') + 1, 1);
    return join(NULL);
}

static int alone(int rank, int size, const char *store, void *user)
{
    (void)rank;
    (void)size;
    (void)store;
    (void)user;
    return join(NULL);
}

/* Two worlds at once in each process, with ranks in opposite order. */
static int two_worlds(int rank, int size, const char *store, void *user)
{
    (void)user;
    shoal_group_t group = NULL, second = NULL;
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.store = store;
    CHECK(shoal_group_create(&options, &group));
    options.rank = size - 1 - rank;
    options.name = "second";
    char other[64];
    snprintf(other, sizeof(other), "127.0.0.1:%d", atoi(strchr(store, ':') + 1) + 1);
    options.store = other;
    CHECK(shoal_group_create(&options, &second));
    for (int i = 0; i < 20; i++) {
        REQUIRE(sum_of_ranks(group) == 0);
        REQUIRE(sum_of_ranks(second) == 0);
    }
    CHECK(shoal_group_free(group));
    REQUIRE(sum_of_ranks(second) == 0);
    CHECK(shoal_group_free(second));
    return 0;
}

/* ---- unique id
 * ------------------------------------------------------------------------------------------------------
 */

/* Carried in a file that rank 0 renames into place. */
static int by_unique_id(int rank, int size, const char *store, void *user)
{
    (void)store;
    const char *folder = user;
    char path[256], draft[256];
    struct shoal_unique_id id;
    shoal_group_t group = NULL;
    snprintf(path, sizeof(path), "%s/id", folder);
    snprintf(draft, sizeof(draft), "%s/draft", folder);
    if (rank == 0) {
        CHECK(shoal_unique_id_create(&id));
        FILE *file = fopen(draft, "w");
        REQUIRE(file && fwrite(&id, sizeof(id), 1, file) == 1);
        fclose(file);
        REQUIRE(rename(draft, path) == 0);
    } else {
        FILE *file = NULL;
        for (int tries = 0; !file && tries < 1000; tries++, poll(NULL, 0, 10))
            file = fopen(path, "r");
        REQUIRE(file && fread(&id, sizeof(id), 1, file) == 1);
        fclose(file);
    }
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.unique_id = &id;
    REQUIRE(join(&options) == 0);
    id.bytes[3] ^= 1;
    REQUIRE(shoal_group_create(&options, &group) == SHOAL_ERR_ARGUMENT);
    return 0;
}

/* ---- the caller's own store
 * --------------------------------------------------------------------------------------------- */

/* A folder: a key is a file, renamed into place. */
static void file_of(const char *folder, const char *key, char path[512])
{
    snprintf(path, 512, "%s/%s", folder, key);
    for (char *at = path + strlen(folder) + 1; *at; at++)
        if (*at == '/')
            *at = '_';
}

static int folder_set(void *user, const char *key, const void *value, size_t bytes)
{
    char path[512], draft[560];
    file_of(user, key, path);
    snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
    FILE *file = fopen(draft, "w");
    if (!file || fwrite(value, 1, bytes, file) != bytes || fclose(file) != 0)
        return -1;
    return rename(draft, path);
}

static int folder_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
                      int64_t timeout_ms)
{
    char path[512];
    struct stat info;
    file_of(user, key, path);
    for (int64_t waited = 0; stat(path, &info) != 0; waited += 5) {
        if (waited > timeout_ms)
            return 1;
        poll(NULL, 0, 5);
    }
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    *bytes = (size_t)info.st_size;
    size_t got = fread(value, 1, capacity, file);
    fclose(file);
    return got == (*bytes < capacity ? *bytes : capacity) ? 0 : -1;
}

static int by_own_store(int rank, int size, const char *store, void *user)
{
    (void)store;
    struct shoal_store own = {sizeof(own), user, folder_set, folder_get};
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.user_store = &own;
    return join(&options);
}

/* ---- many ranks
 * ------------------------------------------------------------------------------------------------------------
 */

/* A second group of all ranks opens nothing. */
static int many(shoal_group_t group, void *user)
{
    (void)user;
    shoal_group_t again = NULL;
    REQUIRE(sum_of_ranks(group) == 0);
    int before = open_descriptors();
    CHECK(shoal_group_split(group, 0, 0, &again));
    REQUIRE(sum_of_ranks(again) == 0);
    REQUIRE(open_descriptors() == before);
    CHECK(shoal_group_free(again));
    return 0;
}

/* ---- counts over 2^31
 * ---------------------------------------------------------------------------------------------------------
 */

static int huge_count(shoal_group_t group, void *user)
{
    (void)user;
    uint64_t n = (UINT64_C(1) << 31) + 5;
    int rank = shoal_group_rank(group);
    unsigned char *bytes = malloc(n);
    REQUIRE(bytes);
    memset(bytes, rank + 1, n);
    bytes[n - 1] = (unsigned char)(rank + 7);
    CHECK(shoal_allreduce(bytes, bytes, n, SHOAL_U8, SHOAL_SUM, group, NULL));
    REQUIRE(bytes[0] == 3 && bytes[UINT64_C(1) << 31] == 3 && bytes[n - 1] == 15);
    bytes[n - 2] = (unsigned char)(rank + 40);
    CHECK(shoal_broadcast(bytes, n, SHOAL_U8, 1, group, NULL));
    REQUIRE(bytes[n - 2] == 41);
    free(bytes);
    return 0;
}

/* ---- tests
 * -------------------------------------------------------------------------------------------------------------------------
 */

static void run_bare(int size, int hosts, int (*bare)(int, int, const char *, void *), void *user)
{
    struct processes run = {.size = size, .hosts = hosts, .bare = bare, .user = user};
    assert_true(processes_run(&run));
}

static void test_addresses(void **state)
{
    (void)state;
    run_bare(3, 1, by_ipv6, NULL);
    run_bare(3, 3, by_ipv6, NULL);
    run_bare(3, 1, by_environment, NULL);
    run_bare(3, 1, by_torch_names, NULL);
    run_bare(1, 1, alone, NULL);
    run_bare(3, 1, two_worlds, NULL);
    run_bare(3, 3, two_worlds, NULL);
}

/* Calls bare with an empty folder, and empties and removes it. */
/* A secret that others may guess is said to be one, once, by one rank. */
static void test_guessable_secret(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        struct processes run = {
            .size = 2, .bare = by_environment, .environment = {"SHOAL_LOG=info"}};
        if (given)
            run.environment[1] = "SHOAL_SECRET=a secret";
        processes_start(&run);
        assert_true(processes_wait(&run));
        assert_int_equal(count_of(run.output[0], GUESSABLE), given ? 0 : 1);
        assert_int_equal(count_of(run.output[1], GUESSABLE), 0);
        processes_release(&run);
    }
}

static void run_in_folder(int hosts, int (*bare)(int, int, const char *, void *))
{
    char folder[] = "/tmp/shoal-test-XXXXXX", path[512];
    assert_non_null(mkdtemp(folder));
    run_bare(3, hosts, bare, folder);
    DIR *entries = opendir(folder);
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(entries);
    assert_int_equal(rmdir(folder), 0);
}

static void test_unique_id(void **state)
{
    (void)state;
    run_in_folder(1, by_unique_id);
    run_in_folder(2, by_unique_id);
}

static void test_own_store(void **state)
{
    (void)state;
    run_in_folder(1, by_own_store);
    run_in_folder(3, by_own_store);
}

static void test_many(void **state)
{
    (void)state;
    struct processes run = {.size = 64, .main = many, .timeout_ms = 60000, .deadline_s = 120};
    assert_true(processes_run(&run));
}

static void test_huge_count(void **state)
{
    (void)state;
    struct sysinfo info;
    if (sysinfo(&info) != 0 || info.freeram * info.mem_unit < (UINT64_C(8) << 30))
        skip_because("less than 8 GiB of free memory");
    struct processes run = {.size = 2, .main = huge_count, .timeout_ms = 100000, .deadline_s = 200};
    assert_true(processes_run(&run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),  cmocka_unit_test(test_unique_id),
        cmocka_unit_test(test_own_store),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_huge_count), cmocka_unit_test(test_guessable_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
