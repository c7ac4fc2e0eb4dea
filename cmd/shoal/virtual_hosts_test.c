/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual_hosts_test.c: virtual hosts are apart from each other and the machine, carry the rate and
 * no more, and leave nothing behind. Includes the sources because the command's files are in no
 * library. Tests that make hosts are skipped without root.
 *
 * Started with arguments, this program is one end of a stream: "take" or "give".
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "support/skip.h"
#include "virtual_hosts.c"
#include "virtual_hosts_process.c"

#define STREAM_PORT  5001
#define STREAM_BYTES (2 * 1024 * 1024)
#define PATIENCE_MS  20000
#define OUTPUT_BYTES 4096
#define SLOW_RATE    UINT64_C(40000000)

static char *own_path;

static const struct vhosts_rates no_limit = {1, {0}};

static struct vhosts *make_linked_hosts(int count, int links, uint64_t rate_bits_per_s)
{
    struct vhosts *vhosts;
    if (geteuid() != 0)
        skip_because("virtual hosts need root");
    struct vhosts_rates rates = {1, {rate_bits_per_s}};
    enum shoal_status status = vhosts_create(count, links, &rates, &vhosts);
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return vhosts;
}

static struct vhosts *make_hosts(int count, uint64_t rate_bits_per_s)
{
    return make_linked_hosts(count, 1, rate_bits_per_s);
}

/* Runs a shell line in a host; its output without the last newline. */
static int run_shell(struct vhosts *vhosts, int host, const char *line, char output[OUTPUT_BYTES])
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)line, NULL};
    int ends[2], status = -1;
    size_t used = 0;
    ssize_t got;
    pid_t pid;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(vhosts_spawn(vhosts, host, argv, NULL, (int[]){-1, ends[1], -1}, &pid),
                     SHOAL_OK);
    close(ends[1]);
    while ((got = read(ends[0], output + used, OUTPUT_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    if (used > 0 && output[used - 1] == '\n')
        output[used - 1] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check_rate(const char *text, uint64_t expected)
{
    struct vhosts_rates rates;
    assert_int_equal(vhosts_parse_rates(text, &rates), SHOAL_OK);
    assert_int_equal(rates.count, 1);
    assert_int_equal(rates.bits_per_s[0], expected);
}

static void test_rates(void **state)
{
    static const char *const wrong[] = {"",       "1",       "gbit",   "-1gbit", "1gbits",
                                        "1 gbit", "0.1mbit", "1tbit",  "0",      "200gbit",
                                        "nan",    "infgbit", "1gbit,", ",1gbit"};
    (void)state;
    check_rate("1gbit", 1000000000);
    check_rate("2.5Gbit", 2500000000);
    check_rate("250mbit", 250000000);
    check_rate("8000kbit", 8000000);
    check_rate("none", 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct vhosts_rates rates = {.count = 77};
        assert_int_equal(vhosts_parse_rates(wrong[i], &rates), SHOAL_ERR_ARGUMENT);
        assert_int_equal(rates.count, 77);
    }
}

/* The last one holds for all that come after. */
static void test_rates_of_several_hosts(void **state)
{
    struct vhosts vhosts = {.count = 4};
    (void)state;
    assert_int_equal(vhosts_parse_rates("250mbit,none,1gbit", &vhosts.rates), SHOAL_OK);
    assert_int_equal(rate_of(&vhosts, 0), 250000000);
    assert_int_equal(rate_of(&vhosts, 1), 0);
    assert_int_equal(rate_of(&vhosts, 2), 1000000000);
    assert_int_equal(rate_of(&vhosts, 3), 1000000000);
}

static void test_wrong_arguments(void **state)
{
    struct vhosts *vhosts = NULL;
    (void)state;
    assert_int_equal(vhosts_create(0, 1, &no_limit, &vhosts), SHOAL_ERR_ARGUMENT);
    assert_int_equal(vhosts_create(VHOSTS_MAX + 1, 1, &no_limit, &vhosts), SHOAL_ERR_ARGUMENT);
    assert_int_equal(vhosts_create(1, 0, &no_limit, &vhosts), SHOAL_ERR_ARGUMENT);
    assert_int_equal(vhosts_create(1, VHOSTS_LINKS_MAX + 1, &no_limit, &vhosts),
                     SHOAL_ERR_ARGUMENT);
    unsetenv(PIDS_VARIABLE);
    assert_int_equal(vhosts_attach(&vhosts), SHOAL_ERR_STATE);
    setenv(PIDS_VARIABLE, "12 x", 1);
    assert_int_equal(vhosts_attach(&vhosts), SHOAL_ERR_FORMAT);
    unsetenv(PIDS_VARIABLE);
    assert_null(vhosts);
}

static void test_missing_tools(void **state)
{
    struct vhosts *vhosts = NULL;
    (void)state;
    if (geteuid() != 0)
        skip_because("virtual hosts need root");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(vhosts_create(1, 1, &no_limit, &vhosts), SHOAL_ERR_SYSTEM);
    setenv("PATH", path, 1);
    free(path);
    assert_non_null(strstr(base_error_text(), "iproute2"));
}

static void test_hosts_are_apart(void **state)
{
    struct vhosts *vhosts = make_hosts(3, 0);
    char text[OUTPUT_BYTES], other[OUTPUT_BYTES], here[OUTPUT_BYTES];
    static const char *const kinds[] = {"net", "uts", "ipc", "pid", "mnt"};
    (void)state;
    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char line[64], ours[64] = "";
        snprintf(line, sizeof(line), "/proc/self/ns/%s", kinds[i]);
        assert_true(readlink(line, ours, sizeof(ours) - 1) > 0);
        snprintf(line, sizeof(line), "readlink /proc/self/ns/%s", kinds[i]);
        assert_int_equal(run_shell(vhosts, 0, line, text), 0);
        assert_int_equal(run_shell(vhosts, 2, line, other), 0);
        assert_string_not_equal(text, other);
        assert_string_not_equal(text, ours);
    }
    assert_int_equal(run_shell(vhosts, 1, "hostname; pwd; echo x > /dev/shm/only-here", text), 0);
    assert_int_equal(strncmp(text, "vh1\n", 4), 0);
    assert_string_equal(text + 4, here);
    assert_int_equal(run_shell(vhosts, 0, "ls /dev/shm", text), 0);
    assert_string_equal(text, "");
    assert_int_not_equal(access("/dev/shm/only-here", F_OK), 0);
    assert_int_equal(run_shell(vhosts, 2, "ls /sys/class/net | tr '\\n' ' '", text), 0);
    assert_string_equal(text, "eth0 lo ");
    assert_int_equal(run_shell(vhosts, 2, "getent ahostsv4 vh0 | head -n 1 | cut -d' ' -f1", text),
                     0);
    assert_string_equal(text, "10.77.1.1");
    vhosts_free(vhosts);
}

/* Two interfaces, each with its rate, on networks that don't meet. */
static void test_several_links(void **state)
{
    struct vhosts *vhosts = make_linked_hosts(2, 2, SLOW_RATE);
    char text[OUTPUT_BYTES];
    (void)state;
    assert_int_equal(run_shell(vhosts, 1, "ls /sys/class/net | tr '\\n' ' '", text), 0);
    assert_string_equal(text, "eth0 eth1 lo ");
    assert_int_equal(run_shell(vhosts, 0,
                               "ip route get 10.78.1.2 | head -n 1 | cut -d' ' -f2-5;"
                               "tc qdisc show |"
                               " sed -n 's/.*tbf.*dev \\(eth.\\).*rate \\([^ ]*\\).*/\\1 \\2/p'",
                               text),
                     0);
    assert_string_equal(text, "dev eth1 src 10.78.1.1\neth0 40Mbit\neth1 40Mbit");
    assert_int_equal(run_shell(vhosts, VHOSTS_HEAD, "tc qdisc show | grep -c 'tbf.*40Mbit'", text),
                     0);
    assert_string_equal(text, "4");
    vhosts_free(vhosts);
}

static void test_errors_of_programs(void **state)
{
    struct vhosts *vhosts = make_hosts(1, 0);
    char *const missing[] = {(char *)"no-such-program", NULL};
    char text[OUTPUT_BYTES];
    pid_t pid = 0;
    int host;
    (void)state;
    assert_int_equal(vhosts_spawn(vhosts, 0, missing, NULL, NULL, &pid), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "no-such-program"));
    assert_non_null(strstr(base_error_text(), "vh0"));
    assert_int_equal(vhosts_spawn(vhosts, 1, missing, NULL, NULL, &pid), SHOAL_ERR_ARGUMENT);
    assert_int_equal(pid, 0);
    assert_int_equal(vhosts_find(vhosts, "vh1", &host), SHOAL_ERR_ARGUMENT);
    assert_int_equal(vhosts_find(vhosts, "vhead", &host), SHOAL_OK);
    assert_int_equal(host, VHOSTS_HEAD);
    assert_int_equal(run_shell(vhosts, 0, "exit 7", text), 7 << 8);
    assert_int_equal(run_shell(vhosts, 0, "kill -9 $$", text), SIGKILL);
    vhosts_free(vhosts);
}

/* Programs in the head find the hosts by what was exported: the pids are those that the head sees.
 */
static void test_head_sees_hosts(void **state)
{
    struct vhosts *vhosts = make_hosts(2, 0);
    char text[OUTPUT_BYTES];
    (void)state;
    assert_int_equal(vhosts_export(vhosts), SHOAL_OK);
    assert_string_equal(getenv(NAMES_VARIABLE), "vh0 vh1");
    assert_int_equal(run_shell(vhosts, VHOSTS_HEAD,
                               "for p in $SHOAL_VHOSTS_PIDS; do "
                               "nsenter -t $p --uts hostname; done | tr '\\n' ' '",
                               text),
                     0);
    assert_string_equal(text, "vh0 vh1 ");
    unsetenv(NAMES_VARIABLE);
    unsetenv(PIDS_VARIABLE);
    vhosts_free(vhosts);
}

/* A stream from vh0 to vh1 can't be faster than the rate, whatever the machine does. */
static void test_rate_is_kept(void **state)
{
    struct vhosts *vhosts = make_hosts(2, SLOW_RATE);
    char *const take[] = {own_path, (char *)"take", NULL};
    char *const give[] = {own_path, (char *)"give", NULL};
    int64_t elapsed_ns;
    int ends[2], status;
    pid_t taker, giver;
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(vhosts_spawn(vhosts, 1, take, NULL, (int[]){-1, ends[1], -1}, &taker),
                     SHOAL_OK);
    assert_int_equal(vhosts_spawn(vhosts, 0, give, NULL, NULL, &giver), SHOAL_OK);
    close(ends[1]);
    assert_int_equal(read(ends[0], &elapsed_ns, sizeof(elapsed_ns)), (int)sizeof(elapsed_ns));
    close(ends[0]);
    assert_int_equal(waitpid(taker, &status, 0), taker);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(giver, &status, 0), giver);
    assert_int_equal(status, 0);
    /* Two buckets on the way, 80 KiB each, may pass at once. */
    int64_t least_ns =
        (int64_t)(STREAM_BYTES - 2 * 80 * 1024) * 8 * 1000 / (int64_t)(SLOW_RATE / 1000000);
    assert_true(elapsed_ns > least_ns * 95 / 100);
    vhosts_free(vhosts);
}

static int take_stream(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(STREAM_PORT)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    static char block[65536];
    ssize_t got, total = 0;
    alarm(PATIENCE_MS / 1000);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0)
        return 1;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || (total = read(fd, block, sizeof(block))) <= 0)
        return 2;
    int64_t start_ns = base_now_ns();
    while ((got = read(fd, block, sizeof(block))) > 0)
        total += got;
    int64_t elapsed_ns = base_now_ns() - start_ns;
    if (total != STREAM_BYTES)
        return 3;
    return write(1, &elapsed_ns, sizeof(elapsed_ns)) == (ssize_t)sizeof(elapsed_ns) ? 0 : 4;
}

static int give_stream(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(STREAM_PORT)};
    static char block[65536];
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    int fd;
    inet_pton(AF_INET, "10.77.1.2", &address.sin_addr);
    alarm(PATIENCE_MS / 1000);
    for (;;) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            break;
        close(fd);
        if (base_now_ns() > deadline_ns)
            return 1;
        base_sleep_ms(20);
    }
    for (int sent = 0; sent < STREAM_BYTES;) {
        ssize_t some = write(fd, block, sizeof(block));
        if (some <= 0)
            return 2;
        sent += (int)some;
    }
    return 0;
}

/* Processes whose network namespace is `inode`, except zombies, which have none. */
static int count_in_namespace(ino_t inode)
{
    DIR *directory = opendir("/proc");
    int count = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[300];
        struct stat about;
        snprintf(path, sizeof(path), "/proc/%s/ns/net", entry->d_name);
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && stat(path, &about) == 0 &&
            about.st_ino == inode)
            count++;
    }
    closedir(directory);
    return count;
}

/* The owner to be killed: makes hosts with a sleeping program in each, tells their namespaces. */
static void own_and_wait(int fd) __attribute__((noreturn));
static void own_and_wait(int fd)
{
    static char *const line[] = {(char *)"sh", (char *)"-c",
                                 (char *)"trap '' TERM HUP INT; setsid sleep 300 & sleep 300",
                                 NULL};
    struct vhosts *vhosts;
    ino_t inodes[3] = {0};
    pid_t pid;
    if (vhosts_create(2, 1, &no_limit, &vhosts) != SHOAL_OK)
        _exit(1);
    for (int host = VHOSTS_HEAD; host < 2; host++) {
        char path[64];
        struct stat about;
        if (vhosts_spawn(vhosts, host, line, NULL, NULL, &pid) != SHOAL_OK)
            _exit(2);
        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
        if (stat(path, &about) != 0)
            _exit(3);
        inodes[host + 1] = about.st_ino;
    }
    if (write(fd, inodes, sizeof(inodes)) != (ssize_t)sizeof(inodes))
        _exit(4);
    for (;;)
        pause();
}

static void test_killed_owner_leaves_nothing(void **state)
{
    ino_t inodes[3];
    int ends[2];
    (void)state;
    if (geteuid() != 0)
        skip_because("virtual hosts need root");
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t owner = fork();
    assert_true(owner >= 0);
    if (owner == 0)
        own_and_wait(ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], inodes, sizeof(inodes)), (int)sizeof(inodes));
    close(ends[0]);
    for (int i = 0; i < 3; i++)
        assert_true(count_in_namespace(inodes[i]) >= 2);
    assert_int_equal(kill(owner, SIGKILL), 0);
    assert_int_equal(waitpid(owner, NULL, 0), owner);
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    for (int i = 0; i < 3; i++) {
        while (count_in_namespace(inodes[i]) > 0) {
            assert_true(base_now_ns() < deadline_ns);
            base_sleep_ms(10);
        }
    }
}

static void test_free_ends_programs(void **state)
{
    struct vhosts *vhosts = make_hosts(1, 0);
    char *const argv[] = {(char *)"sleep", (char *)"300", NULL};
    pid_t pid;
    int status;
    (void)state;
    assert_int_equal(vhosts_spawn(vhosts, 0, argv, NULL, NULL, &pid), SHOAL_OK);
    assert_int_equal(kill(pid, 0), 0);
    vhosts_free(vhosts);
    assert_int_equal(waitpid(pid, &status, 0), -1);
    assert_int_equal(errno, ECHILD);
    vhosts_free(NULL);
}

/* Every allocation in turn fails: an error, no crash, nothing held. */
static void test_failing_allocations(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("virtual hosts need root");
    for (uint64_t nth = 1; nth < 50; nth++) {
        struct vhosts *vhosts = NULL;
        size_t blocks = base_memory_blocks();
        base_memory_fail_at(nth);
        enum shoal_status status = vhosts_create(1, 1, &no_limit, &vhosts);
        base_memory_fail_at(0);
        if (status == SHOAL_OK) {
            assert_true(nth > 1);
            vhosts_free(vhosts);
            return;
        }
        assert_int_equal(status, SHOAL_ERR_MEMORY);
        assert_null(vhosts);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    fail_msg("more than 50 allocations");
}

int main(int argc, char **argv)
{
    static char path[PATH_MAX];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_rates_of_several_hosts),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_missing_tools),
        cmocka_unit_test(test_hosts_are_apart),
        cmocka_unit_test(test_several_links),
        cmocka_unit_test(test_errors_of_programs),
        cmocka_unit_test(test_head_sees_hosts),
        cmocka_unit_test(test_rate_is_kept),
        cmocka_unit_test(test_killed_owner_leaves_nothing),
        cmocka_unit_test(test_free_ends_programs),
        cmocka_unit_test(test_failing_allocations),
    };
    if (argc > 1)
        return strcmp(argv[1], "take") == 0 ? take_stream() : give_stream();
    own_path = realpath("/proc/self/exe", path);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
