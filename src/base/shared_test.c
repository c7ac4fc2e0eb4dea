/* SPDX-License-Identifier: Apache-2.0 */
/* shared_test.c: regions: shared with a child, bounded, and gone without a trace. */
#include "base/shared.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

#define REGION_BYTES ((size_t)4 << 20)

static void two_mappings_show_the_same_memory(void **state)
{
    (void)state;
    struct base_shared a, b;
    assert_int_equal(base_shared_create("test", REGION_BYTES - 5, BASE_FORK_DROPS, &a), SHOAL_OK);
    assert_int_equal(a.bytes, REGION_BYTES);
    assert_int_equal(base_shared_commit(&a, 0, 10000), SHOAL_OK);
    assert_int_equal(base_shared_map(dup(a.fd), &b), SHOAL_OK);
    assert_int_equal(b.bytes, a.bytes);
    strcpy(a.address, "hello");
    assert_string_equal(b.address, "hello");
    base_shared_release(&b);
    base_shared_release(&a);
    assert_int_equal(a.fd, -1);
    assert_null(a.address);
    base_shared_release(&a);
}

static void pages_are_taken_only_when_committed(void **state)
{
    (void)state;
    struct base_shared shared;
    struct stat file;
    assert_int_equal(base_shared_create("test", (size_t)64 << 30, BASE_FORK_DROPS, &shared),
                     SHOAL_OK);
    assert_int_equal(fstat(shared.fd, &file), 0);
    assert_int_equal(file.st_blocks, 0);
    assert_int_equal(base_shared_commit(&shared, REGION_BYTES, REGION_BYTES), SHOAL_OK);
    assert_int_equal(fstat(shared.fd, &file), 0);
    assert_int_equal(file.st_blocks, REGION_BYTES / 512);
    base_shared_release(&shared);
}

static void commits_are_bounded(void **state)
{
    (void)state;
    struct base_shared shared;
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_DROPS, &shared), SHOAL_OK);
    assert_int_equal(base_shared_commit(&shared, 0, 0), SHOAL_OK);
    assert_int_equal(base_shared_commit(&shared, 0, REGION_BYTES), SHOAL_OK);
    assert_int_equal(base_shared_commit(&shared, 1, REGION_BYTES), SHOAL_ERR_LIMIT);
    assert_non_null(strstr(base_error_text(), "SHOAL_SHARED_BYTES"));
    assert_int_equal(base_shared_commit(&shared, SIZE_MAX, 2), SHOAL_ERR_LIMIT);
    base_shared_release(&shared);
    assert_int_equal(base_shared_create("test", 0, BASE_FORK_DROPS, &shared), SHOAL_ERR_ARGUMENT);
}

static void nobody_can_cut_a_region(void **state)
{
    (void)state;
    struct base_shared shared;
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_DROPS, &shared), SHOAL_OK);
    assert_int_equal(ftruncate(shared.fd, 4096), -1);
    base_shared_release(&shared);
}

static void what_is_no_region_is_refused(void **state)
{
    (void)state;
    struct base_shared shared;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(base_shared_map(ends[0], &shared), SHOAL_ERR_FORMAT);
    assert_int_equal(fcntl(ends[0], F_GETFD), -1); /* it was taken over */
    close(ends[1]);
    assert_int_equal(base_shared_map(-1, &shared), SHOAL_ERR_SYSTEM);
}

/* A limit that is too small is an error with a way out, not a signal. */
static void assert_limited(int resource, rlim_t limit, const char *part)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit few = {limit, limit};
        struct base_shared shared;
        setrlimit(resource, &few);
        enum shoal_status status =
            base_shared_create("test", (size_t)64 << 30, BASE_FORK_DROPS, &shared);
        _exit(status == SHOAL_ERR_MEMORY && strstr(base_error_text(), part) != NULL ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

static void limits_are_told(void **state)
{
    (void)state;
    assert_limited(RLIMIT_FSIZE, 1 << 20, "ulimit -f");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_limited(RLIMIT_AS, (rlim_t)4 << 30, "SHOAL_SHARED_BYTES");
#endif
}

/* Whether a forked child finds the byte that the parent wrote. */
static bool child_finds(const struct base_shared *shared)
{
    *(char *)shared->address = 'p';
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char resident;
        bool is_mapped = mincore(shared->address, 1, &resident) == 0;
        _exit(is_mapped && *(volatile char *)shared->address == 'p' ? 0 : 1);
    }
    int result;
    waitpid(pid, &result, 0);
    return result == 0;
}

static void children_inherit_only_if_asked(void **state)
{
    (void)state;
    struct base_shared kept, not_kept;
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_SHARES, &kept), SHOAL_OK);
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_DROPS, &not_kept),
                     SHOAL_OK);
    assert_true(child_finds(&kept));
    assert_false(child_finds(&not_kept));
    base_shared_release(&kept);
    base_shared_release(&not_kept);
}

/* In a child: it finds what the parent wrote, and writes for itself. */
static int write_in_child(const struct base_shared *shared)
{
    volatile char *bytes = shared->address;
    if (bytes[0] != 'p' || bytes[REGION_BYTES - 1] != 'q')
        return 1;
    bytes[0] = 'c';
    return bytes[0] == 'c' ? 0 : 2;
}

static void children_write_a_copy_of_their_own(void **state)
{
    (void)state;
    struct base_shared copied, other;
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_COPIES, &copied), SHOAL_OK);
    assert_int_equal(base_shared_create("test", REGION_BYTES, BASE_FORK_COPIES, &other), SHOAL_OK);
    base_shared_release(&other); /* is not copied any more */
    ((char *)copied.address)[0] = 'p';
    ((char *)copied.address)[REGION_BYTES - 1] = 'q';
    pid_t pid = fork();
    if (pid == 0)
        _exit(write_in_child(&copied));
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    assert_int_equal(((char *)copied.address)[0], 'p');
    base_shared_release(&copied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_mappings_show_the_same_memory),
        cmocka_unit_test(pages_are_taken_only_when_committed),
        cmocka_unit_test(commits_are_bounded),
        cmocka_unit_test(nobody_can_cut_a_region),
        cmocka_unit_test(what_is_no_region_is_refused),
        cmocka_unit_test(limits_are_told),
        cmocka_unit_test(children_inherit_only_if_asked),
        cmocka_unit_test(children_write_a_copy_of_their_own),
    };
    return cmocka_run_group_tests_name("base shared", tests, NULL, NULL);
}
