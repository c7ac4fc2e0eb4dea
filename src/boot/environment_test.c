/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment_test.c: every reader on the variables that its launcher sets, right and wrong.
 *
 * Called with "probe" this program is a rank: it reads its identity, meets the others at the store
 * and prints a line; tests/test_launchers.py starts it under the real launchers.
 */
#include "boot/environment.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/environment_reader.h"
#include "boot/slurm.h"
#include "boot/store.h"

/* ---- the probe ------------------------------------------------------------------------------- */

static enum shoal_status probe_gather(struct boot_store *store, const char *prefix,
                                      const struct boot_identity *identity, int64_t deadline_ns)
{
    char key[64];
    const void **values;
    size_t *sizes;
    void *block;
    snprintf(key, sizeof(key), "%s%d", prefix, identity->rank);
    TRY(boot_store_set(store, key, &identity->rank, sizeof(int)));
    TRY(BASE_NEW_ARRAY(&values, identity->size, "values"));
    TRY(BASE_NEW_ARRAY(&sizes, identity->size, "sizes"));
    TRY(boot_store_gather(store, prefix, identity->size, deadline_ns, &block, values, sizes));
    for (int i = 0; i < identity->size; i++) {
        if (sizes[i] != sizeof(int) || memcmp(values[i], &i, sizeof(int)) != 0)
            return base_error(SHOAL_ERR_INTERNAL, "rank %d's value is another", i);
    }
    base_free(block);
    base_free(values);
    base_free(sizes);
    return SHOAL_OK;
}

/* Meets all ranks at the identity's store: each says its number and sees everyone's. The server's
 * rank stays until all have. */
static enum shoal_status probe_meet(struct boot_identity *identity, int round, int64_t deadline_ns)
{
    struct boot_store *store;
    char prefix[32];
    if (identity->serve_here)
        TRY(boot_store_serve_address(identity->store, identity->secret, &identity->server));
    TRY(boot_store_connect(identity->store, identity->secret, deadline_ns, &store));
    snprintf(prefix, sizeof(prefix), "round%d/", round);
    TRY(probe_gather(store, prefix, identity, deadline_ns));
    char done[64];
    snprintf(done, sizeof(done), "%sdone/", prefix);
    if (identity->server != NULL) {
        TRY(probe_gather(store, done, identity, deadline_ns));
    } else {
        char key[80];
        snprintf(key, sizeof(key), "%s%d", done, identity->rank);
        TRY(boot_store_set(store, key, &identity->rank, sizeof(int)));
    }
    boot_store_close(store);
    boot_store_stop(identity->server, 5000);
    return SHOAL_OK;
}

/* Two groups one after the other, as a program may make them. */
static int probe(void)
{
    int64_t deadline_ns = base_deadline_ns(60000);
    for (int round = 0; round < 2; round++) {
        struct boot_identity identity;
        enum shoal_status status = boot_identity_read(deadline_ns, &identity);
        if (status == SHOAL_OK && identity.size > 1)
            status = probe_meet(&identity, round, deadline_ns);
        if (status != SHOAL_OK) {
            fprintf(stderr, "probe: %s\n", base_error_text());
            return 1;
        }
        if (round == 1)
            printf("met: rank %d of %d, local %d of %d, by %s\n", identity.rank, identity.size,
                   identity.local_rank, identity.local_size, identity.launcher);
    }
    fflush(stdout);
    return 0;
}

/* ---- variables ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    clearenv();
    base_options_reset();
    return 0;
}

static void set(const char *name, const char *value)
{
    setenv(name, value, 1);
    base_options_reset();
}

static struct boot_identity read_right(void)
{
    struct boot_identity identity;
    if (boot_identity_read(base_deadline_ns(5000), &identity) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return identity;
}

static void read_wrong(const char *part)
{
    struct boot_identity identity;
    enum shoal_status status = boot_identity_read(base_deadline_ns(5000), &identity);
    if (status != SHOAL_ERR_OPTION || strstr(base_error_text(), part) == NULL)
        fail_msg("%d \"%s\", not \"%s\"", status, base_error_text(), part);
}

static void nothing_is_a_group_of_one(void **state)
{
    (void)state;
    struct boot_identity identity = read_right();
    assert_int_equal(identity.rank, 0);
    assert_int_equal(identity.size, 1);
    assert_string_equal(identity.launcher, "none");
    assert_string_equal(identity.store, "");
    assert_false(identity.serve_here);
}

static void shoal_run_wins(void **state)
{
    (void)state;
    set("SHOAL_RANK", "0");
    set("SHOAL_SIZE", "4");
    set("SHOAL_STORE", "127.0.0.1:1234");
    set("SHOAL_SECRET", "abc");
    set("SHOAL_LOCAL_RANK", "0");
    set("SHOAL_LOCAL_SIZE", "2");
    set("RANK", "3");
    set("WORLD_SIZE", "9");
    set("PMI_FD", "99");
    struct boot_identity by_hand = read_right();
    assert_int_equal(by_hand.rank, 0);
    assert_int_equal(by_hand.size, 4);
    assert_int_equal(by_hand.local_rank, 0);
    assert_int_equal(by_hand.local_size, 2);
    assert_string_equal(by_hand.store, "127.0.0.1:1234");
    assert_string_equal(by_hand.launcher, "shoal");
    assert_true(by_hand.serve_here);
    /* Another host may know the launcher's store by another address; the job is the same. */
    set("SHOAL_STORE", "192.0.2.1:1234");
    set("SHOAL_LAUNCHED_BY", "shoal");
    struct boot_identity launched = read_right();
    assert_false(launched.serve_here);
    assert_memory_equal(by_hand.job, launched.job, sizeof(launched.job));
    assert_memory_equal(by_hand.secret, launched.secret, sizeof(launched.secret));
    assert_false(by_hand.guessable);
    unsetenv("SHOAL_SECRET");
    base_options_reset();
    assert_true(read_right().guessable);
    set("SHOAL_SECRET", "abd");
    struct boot_identity other = read_right();
    assert_memory_not_equal(other.job, launched.job, sizeof(launched.job));
    assert_memory_not_equal(other.secret, launched.secret, sizeof(launched.secret));
}

static void what_is_missing_or_wrong_by_hand_is_named(void **state)
{
    (void)state;
    set("SHOAL_RANK", "1");
    read_wrong("SHOAL_SIZE is missing");
    set("SHOAL_SIZE", "2");
    read_wrong("SHOAL_STORE");
    set("SHOAL_STORE", "nohost");
    read_wrong("nohost");
    set("SHOAL_STORE", "::1:80");
    read_wrong("[address]:port");
    set("SHOAL_STORE", "[::1]:80");
    assert_string_equal(read_right().store, "[::1]:80");
    set("SHOAL_RANK", "2");
    read_wrong("ranks go from 0 to 1");
    set("SHOAL_RANK", "x");
    read_wrong("SHOAL_RANK");
    set("SHOAL_RANK", "0");
    set("SHOAL_LOCAL_SIZE", "3");
    read_wrong("3 local ranks");
    set("SHOAL_LOCAL_SIZE", "2");
    set("SHOAL_TIMEOUT_NS", "5");
    read_wrong("SHOAL_TIMEOUT_MS");
}

static void torchrun_is_read(void **state)
{
    (void)state;
    set("RANK", "1");
    set("WORLD_SIZE", "2");
    set("LOCAL_RANK", "1");
    set("LOCAL_WORLD_SIZE", "2");
    set("MASTER_ADDR", "localhost");
    set("MASTER_PORT", "29500");
    set("TORCHELASTIC_RUN_ID", "run");
    struct boot_identity identity = read_right();
    assert_int_equal(identity.rank, 1);
    assert_int_equal(identity.size, 2);
    assert_int_equal(identity.local_rank, 1);
    assert_string_equal(identity.store,
                        "localhost:29501,localhost:29502,localhost:29503,localhost:29504");
    assert_false(identity.serve_here);
    assert_true(identity.guessable);
    set("SHOAL_SECRET", "abc");
    assert_false(read_right().guessable);
    unsetenv("SHOAL_SECRET");
    set("RANK", "0");
    struct boot_identity zero = read_right();
    assert_true(zero.serve_here);
    assert_memory_equal(zero.secret, identity.secret, sizeof(zero.secret));
    set("TORCHELASTIC_RUN_ID", "another");
    struct boot_identity another = read_right();
    assert_memory_not_equal(zero.secret, another.secret, sizeof(zero.secret));
    set("SHOAL_STORE", "somewhere:5");
    assert_string_equal(read_right().store, "somewhere:5");
    unsetenv("SHOAL_STORE");
    set("MASTER_ADDR", "2001:db8::1");
    assert_non_null(strstr(read_right().store, "[2001:db8::1]:29501,[2001:db8::1]:29502"));
    set("MASTER_PORT", "65535");
    assert_non_null(strstr(read_right().store, "[2001:db8::1]:65534,[2001:db8::1]:65533"));
    set("SHOAL_STORE", "a:1,b:2");
    assert_string_equal(read_right().store, "a:1,b:2");
    set("SHOAL_STORE", "a:1,b");
    read_wrong("SHOAL_STORE");
}

static void what_is_missing_or_wrong_in_torchruns_is_named(void **state)
{
    (void)state;
    set("RANK", "1");
    set("MASTER_ADDR", "localhost");
    read_wrong("WORLD_SIZE is missing");
    set("WORLD_SIZE", "2");
    read_wrong("MASTER_PORT is missing");
    set("MASTER_PORT", "100000");
    read_wrong("MASTER_PORT=\"100000\"");
    set("MASTER_PORT", "29500");
    unsetenv("MASTER_ADDR");
    read_wrong("MASTER_ADDR is missing");
    set("RANK", "2");
    set("MASTER_ADDR", "localhost");
    read_wrong("rank 2 of 2");
    set("RANK", "-1");
    read_wrong("RANK=\"-1\"");
}

static void slurms_lists_are_read(void **state)
{
    (void)state;
    const struct {
        const char *list, *first;
    } hosts[] = {
        {"node1", "node1"},    {"node1,node2", "node1"},
        {"n[1-2,5],m3", "n1"}, {"rack[0-1]n[003-005,9]x", "rack0n003x"},
        {"n[7]", "n7"},        {"a.b-c,d", "a.b-c"},
    };
    char host[64];
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        assert_int_equal(boot_slurm_first_host(hosts[i].list, host, sizeof(host)), SHOAL_OK);
        assert_string_equal(host, hosts[i].first);
    }
    const char *wrong_hosts[] = {"", ",a", "n[1-2", "[", "a b"};
    for (size_t i = 0; i < sizeof(wrong_hosts) / sizeof(wrong_hosts[0]); i++) {
        if (boot_slurm_first_host(wrong_hosts[i], host, sizeof(host)) == SHOAL_OK)
            fail_msg("\"%s\" was read as \"%s\"", wrong_hosts[i], host);
    }
    assert_int_equal(boot_slurm_first_host("abcdefgh", host, 8), SHOAL_ERR_OPTION);

    int tasks;
    assert_int_equal(boot_slurm_tasks_on_node("4(x2),1", 0, &tasks), SHOAL_OK);
    assert_int_equal(tasks, 4);
    assert_int_equal(boot_slurm_tasks_on_node("4(x2),1", 1, &tasks), SHOAL_OK);
    assert_int_equal(tasks, 4);
    assert_int_equal(boot_slurm_tasks_on_node("4(x2),1", 2, &tasks), SHOAL_OK);
    assert_int_equal(tasks, 1);
    const char *wrong_tasks[] = {"", "x", "4(x2),1", "4(x0)", "4(x", "99999999999"};
    for (size_t i = 0; i < sizeof(wrong_tasks) / sizeof(wrong_tasks[0]); i++)
        assert_int_equal(boot_slurm_tasks_on_node(wrong_tasks[i], 3, &tasks), SHOAL_ERR_OPTION);
}

static void srun_is_read_by_its_variables(void **state)
{
    (void)state;
    set("SLURM_PROCID", "5");
    set("SLURM_NTASKS", "6");
    assert_string_equal(read_right().launcher, "none"); /* a batch script, not a step */
    set("SLURM_STEP_NUM_TASKS", "6");
    read_wrong("SLURM_STEP_NODELIST");
    set("SLURM_STEP_NODELIST", "n[1-2]");
    set("SLURM_STEP_TASKS_PER_NODE", "4,2");
    set("SLURM_JOB_ID", "17");
    set("SLURM_STEP_ID", "0");
    set("SLURM_LOCALID", "1");
    set("SLURM_NODEID", "1");
    struct boot_identity identity = read_right();
    assert_int_equal(identity.rank, 5);
    assert_int_equal(identity.size, 6);
    assert_int_equal(identity.local_rank, 1);
    assert_int_equal(identity.local_size, 2);
    assert_int_equal(strncmp(identity.store, "n1:", 3), 0);
    int port = atoi(identity.store + 3);
    assert_in_range(port, 10000, 29999);
    set("SLURM_STEP_ID", "1");
    assert_string_not_equal(read_right().store, identity.store);
    set("SHOAL_STORE", "n2:1");
    assert_string_equal(read_right().store, "n2:1");
    set("SLURM_STEP_TASKS_PER_NODE", "?");
    read_wrong("tasks of every node");
}

static void open_mpi_without_pmix_is_read_on_one_host(void **state)
{
    (void)state;
    set("OMPI_COMM_WORLD_RANK", "0");
    set("OMPI_COMM_WORLD_SIZE", "2");
    set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
    set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    set("PMIX_NAMESPACE", "prterun-host-1@1");
    struct boot_identity identity = read_right();
    assert_string_equal(identity.launcher, "openmpi");
    assert_true(identity.guessable);
    assert_int_equal(strncmp(identity.store, "127.0.0.1:", 10), 0);
    assert_true(identity.serve_here);
    set("OMPI_COMM_WORLD_SIZE", "4");
    read_wrong("SHOAL_STORE");
    set("SHOAL_STORE", "h:1");
    assert_string_equal(read_right().store, "h:1");
}

static void cards_carry_address_and_secret(void **state)
{
    (void)state;
    struct boot_identity zero = {.rank = 0, .size = 2}, one = {.rank = 1, .size = 2};
    char card[BOOT_CARD_BYTES];
    assert_int_equal(boot_identity_make_card(&zero, card), SHOAL_OK);
    assert_non_null(zero.server);
    assert_null(strpbrk(card, " =;\n"));
    assert_int_equal(boot_identity_take_card(&one, card), SHOAL_OK);
    assert_string_equal(zero.store, one.store);
    assert_memory_equal(zero.secret, one.secret, sizeof(one.secret));
    boot_store_stop(zero.server, 0);

    const char *wrong[] = {"", "shoal1/", "shoal1/abc/h:1", "shoal2//h:1", "something else"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(boot_identity_take_card(&one, wrong[i]), SHOAL_ERR_FORMAT);

    set("SHOAL_SECRET", "given");
    assert_int_equal(boot_identity_make_card(&zero, card), SHOAL_OK);
    assert_int_equal(boot_identity_take_card(&one, card), SHOAL_OK);
    assert_memory_equal(zero.secret, one.secret, sizeof(one.secret));
    boot_store_stop(zero.server, 0);
    unsetenv("SHOAL_SECRET");
    base_options_reset();
    assert_int_equal(boot_identity_take_card(&one, card), SHOAL_ERR_OPTION);
}

/* ---- a PMI launcher that does not behave ----------------------------------------------------- */

struct bad_launcher {
    const char *answers; /* one for each line received, '|' between; none: it hangs up */
    int fd;
};

static void *answer_badly(void *argument)
{
    struct bad_launcher *launcher = argument;
    char line[512];
    const char *at = launcher->answers;
    while (recv(launcher->fd, line, sizeof(line), 0) > 0) {
        if (*launcher->answers == '\0')
            shutdown(launcher->fd, SHUT_RDWR);
        size_t bytes = strcspn(at, "|");
        if (bytes > 0 && send(launcher->fd, at, bytes, MSG_NOSIGNAL) < 0)
            break;
        at += bytes + (at[bytes] == '|');
    }
    return NULL;
}

/* In a process of its own, because the connection lasts for the process's life. */
static void assert_pmi_fails(const char *answers, enum shoal_status expected, const char *part)
{
    pid_t pid = fork();
    if (pid == 0) {
        int pair[2];
        char number[16];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            _exit(2);
        struct bad_launcher launcher = {answers, pair[1]};
        pthread_t thread;
        pthread_create(&thread, NULL, answer_badly, &launcher);
        pthread_detach(thread);
        snprintf(number, sizeof(number), "%d", pair[0]);
        setenv("PMI_FD", number, 1);
        setenv("PMI_RANK", "1", 1);
        setenv("PMI_SIZE", "2", 1);
        struct boot_identity identity;
        enum shoal_status status = boot_identity_read(base_deadline_ns(300), &identity);
        if (status == expected && strstr(base_error_text(), part) != NULL)
            _exit(0);
        fprintf(stderr, "%d \"%s\"\n", status, base_error_text());
        _exit(1);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

#define PMI_START                                                 \
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n|" \
    "cmd=my_kvsname kvsname=kvs_0\n|"

static void a_launcher_that_misbehaves_is_told(void **state)
{
    (void)state;
    assert_pmi_fails("", SHOAL_ERR_PEER_LOST, "closed");
    assert_pmi_fails("nonsense\n|", SHOAL_ERR_FORMAT, "nonsense");
    assert_pmi_fails("cmd=response_to_init rc=-1\n|", SHOAL_ERR_SYSTEM, "refuses");
    assert_pmi_fails(PMI_START, SHOAL_ERR_TIMEOUT, "not all 2 ranks");
    assert_pmi_fails(PMI_START "cmd=barrier_out\n|cmd=get_result rc=0 value=junk\n|",
                     SHOAL_ERR_FORMAT, "card");
    assert_pmi_fails(PMI_START "cmd=barrier_out\n|cmd=get_result rc=0\n|", SHOAL_ERR_FORMAT,
                     "card");
    char long_line[4000];
    memset(long_line, 'x', sizeof(long_line) - 1);
    long_line[sizeof(long_line) - 1] = '\0';
    assert_pmi_fails(long_line, SHOAL_ERR_FORMAT, "without end");
}

static void a_closed_pmi_descriptor_is_told(void **state)
{
    (void)state;
    set("PMI_FD", "987");
    set("PMI_RANK", "0");
    set("PMI_SIZE", "2");
    read_wrong("PMI_FD=987 is not open");
    set("SHOAL_STORE", "h:1");
    struct boot_identity identity = read_right();
    assert_int_equal(identity.size, 2);
    assert_string_equal(identity.store, "h:1");
    unsetenv("PMI_FD");
    unsetenv("SHOAL_STORE");
    unsetenv("PMI_RANK");
    set("PMI_PORT", "localhost:1");
    read_wrong("PMI_ID is missing");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "probe") == 0)
        return probe();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_a_group_of_one, set_up),
        cmocka_unit_test_setup(shoal_run_wins, set_up),
        cmocka_unit_test_setup(what_is_missing_or_wrong_by_hand_is_named, set_up),
        cmocka_unit_test_setup(torchrun_is_read, set_up),
        cmocka_unit_test_setup(what_is_missing_or_wrong_in_torchruns_is_named, set_up),
        cmocka_unit_test_setup(slurms_lists_are_read, set_up),
        cmocka_unit_test_setup(srun_is_read_by_its_variables, set_up),
        cmocka_unit_test_setup(open_mpi_without_pmix_is_read_on_one_host, set_up),
        cmocka_unit_test_setup(a_launcher_that_misbehaves_is_told, set_up),
        cmocka_unit_test_setup(a_closed_pmi_descriptor_is_told, set_up),
        /* Last, because its servers stay, and others fork. */
        cmocka_unit_test_setup(cards_carry_address_and_secret, set_up),
    };
    return cmocka_run_group_tests_name("boot environment", tests, NULL, NULL);
}
