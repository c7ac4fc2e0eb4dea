/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instance_test.c: real instances run real programs. What they see, how they reach each other, how
 * they end, and that nothing is left, as root and as a plain user.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/instance.h"
#include "support/process_count.h"
#include "support/skip.h"

#define COUNT_MAX 3
#define TURNS_MS  20000

/* A job in a folder of its own, whose program is a shell script. */
struct trial {
    char folder[64], folders[COUNT_MAX][96], logs[COUNT_MAX][128];
    struct job_instance_plan instances[COUNT_MAX];
    char *program[4];
    struct job_plan plan;
    struct job_instances *all;
    size_t blocks; /* of memory, before it */
};

static char *const environment[] = {(char *)"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                                    (char *)"GREETING=hello there", NULL};

static void trial_plan(struct trial *trial, int count, const char *script)
{
    snprintf(trial->folder, sizeof(trial->folder), "/tmp/shoal-instance-XXXXXX");
    trial->blocks = base_memory_blocks();
    assert_non_null(mkdtemp(trial->folder));
    assert_int_equal(chmod(trial->folder, 0755), 0);
    for (int i = 0; i < count; i++) {
        snprintf(trial->folders[i], sizeof(trial->folders[i]), "%s/algo-%d", trial->folder, i + 1);
        snprintf(trial->logs[i], sizeof(trial->logs[i]), "%s.log", trial->folders[i]);
        assert_int_equal(mkdir(trial->folders[i], 0755), 0);
        trial->instances[i] = (struct job_instance_plan){
            .folder = trial->folders[i], .log_path = trial->logs[i], .environment = environment};
    }
    trial->program[0] = (char *)"sh";
    trial->program[1] = (char *)"-c";
    trial->program[2] = (char *)script;
    trial->program[3] = NULL;
    trial->plan = (struct job_plan){
        .name = "trial", .count = count, .instances = trial->instances, .program = trial->program};
}

static void expect_ok(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

static void trial_start(struct trial *trial)
{
    int exec_errno;
    expect_ok(job_instances_create(&trial->plan, &trial->all));
    expect_ok(job_instances_start(trial->all, &exec_errno));
}

static bool is_ended(const struct trial *trial)
{
    for (int i = 0; i < trial->plan.count; i++) {
        if (job_instances_state(trial->all, i) != JOB_INSTANCE_ENDED)
            return false;
    }
    return true;
}

static void trial_turn(struct trial *trial, struct launch_loop *loop)
{
    expect_ok(job_instances_watch(trial->all, loop));
    expect_ok(launch_loop_turn(loop, base_deadline_ns(100)));
}

static void trial_wait(struct trial *trial)
{
    struct launch_loop loop = {0};
    int64_t deadline_ns = base_deadline_ns(TURNS_MS);
    while (!is_ended(trial) && base_now_ns() < deadline_ns)
        trial_turn(trial, &loop);
    launch_loop_release(&loop);
    assert_true(is_ended(trial));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

static void trial_release(struct trial *trial)
{
    job_instances_free(trial->all);
    assert_int_equal(nftw(trial->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
    assert_int_equal(base_memory_blocks(), trial->blocks);
}

/* An instance's log without its times. In static memory. */
static const char *log_of(const struct trial *trial, int index)
{
    static char text[16384];
    char *line = NULL;
    size_t used = 0, capacity = 0;
    ssize_t count;
    FILE *file = fopen(trial->logs[index], "r");
    assert_non_null(file);
    while ((count = getline(&line, &capacity, file)) > 14 && used + (size_t)count < sizeof(text)) {
        memcpy(text + used, line + 14, (size_t)count - 14);
        used += (size_t)count - 14;
    }
    text[used] = '\0';
    free(line);
    fclose(file);
    return text;
}

static void expect_log(const struct trial *trial, int index, const char *expected)
{
    const char *text = log_of(trial, index);
    if (strcmp(text, expected) != 0)
        fail_msg("algo-%d wrote:\n%s\nand not:\n%s", index + 1, text, expected);
}

static void expect_in_log(const struct trial *trial, int index, const char *expected)
{
    const char *text = log_of(trial, index);
    if (strstr(text, expected) == NULL)
        fail_msg("algo-%d wrote:\n%s\nwithout:\n%s", index + 1, text, expected);
}

/* Runs the script in `count` instances to its end. */
static void trial_run(struct trial *trial, int count, const char *script)
{
    trial_plan(trial, count, script);
    trial_start(trial);
    trial_wait(trial);
}

/* ---- what an instance sees ---- */

static void test_one_instance_has_its_own_everything(void **state)
{
    (void)state;
    struct trial trial;
    trial_run(&trial, 1,
              "hostname; echo $GREETING; env | sort | tr '\\n' ' '; echo; id -u; pwd\n"
              "ls /opt/ml; cat /etc/hostname; tail -1 /etc/hosts\n"
              "ls /sys/class/net | tr '\\n' ' '; echo; ls -A /root /home /tmp /dev/shm\n"
              "test $(ls -d /proc/[0-9]* | wc -l) -le 9 && echo few processes\n"
              "touch /tmp/a /var/tmp/b /root/c /dev/shm/d /opt/ml/model/e && echo wrote\n"
              "touch /usr/f /opt/g /h 2>/dev/null || echo refused");
    expect_log(&trial, 0,
               "algo-1\nhello there\n"
               "GREETING=hello there PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin PWD=/ \n"
               "0\n/\ncheckpoints\ncode\ninput\nmodel\noutput\nalgo-1\n10.77.1.1 algo-1\n"
               "eth0 lo \n/dev/shm:\n\n/home:\n\n/root:\n\n/tmp:\nfew processes\nwrote\nrefused\n");
    assert_int_equal(job_instances_wait_status(trial.all, 0), 0);
    char path[128];
    snprintf(path, sizeof(path), "%s/ml/model/e", trial.folders[0]);
    assert_int_equal(access(path, F_OK), 0);
    trial_release(&trial);
}

static void test_the_machine_is_out_of_reach(void **state)
{
    (void)state;
    struct trial trial;
    trial_run(
        &trial, 1,
        "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper\n"
        "do (echo x >$f) 2>/dev/null && echo wrote $f; done\n"
        "mount -t tmpfs x /tmp 2>/dev/null && echo mounted\n"
        "hostname other 2>/dev/null && echo renamed\n"
        "mknod /tmp/disk b 8 0 2>/dev/null && echo device\n"
        "kill -9 1; chroot / true && echo alive");
    expect_log(&trial, 0, "alive\n");
    trial_release(&trial);
}

static void test_mounts_and_hidden_places(void **state)
{
    (void)state;
    struct trial trial;
    char data[96], secret[96];
    trial_plan(&trial, 1,
               "cat /opt/ml/input/data/train/x; (echo 1 >/opt/ml/input/data/train/x) 2>/dev/null ||"
               " echo read only\n"
               "echo 2 >/made/for/it/x; cat /made/for/it/x\n"
               "echo 3 >/usr/local/lib/own-x && cat /usr/local/lib/own-x; echo 4 >/copy/x\n"
               "cat $SECRET/x 2>/dev/null || echo hidden");
    snprintf(data, sizeof(data), "%s/data", trial.folder);
    snprintf(secret, sizeof(secret), "%s/data/x", trial.folder);
    assert_int_equal(mkdir(data, 0755), 0);
    FILE *file = fopen(secret, "w");
    fputs("0\n", file);
    fclose(file);
    const struct job_mount mounts[] = {{data, "/opt/ml/input/data/train", JOB_READ_ONLY},
                                       {data, "/made/for/it", JOB_WRITABLE},
                                       {"/usr/local/lib", "/usr/local/lib", JOB_OWN_COPY},
                                       {data, "/copy", JOB_OWN_COPY}};
    const char *const hidden[] = {trial.folder, "/etc/shadow", "/nowhere", NULL};
    char variable[128];
    snprintf(variable, sizeof(variable), "SECRET=%s", data);
    char *const own[] = {environment[0], variable, NULL};
    trial.instances[0].environment = own;
    trial.plan.mounts = mounts;
    trial.plan.mount_count = 4;
    trial.plan.hidden = hidden;
    trial_start(&trial);
    trial_wait(&trial);
    expect_log(&trial, 0, "0\nread only\n2\n3\nhidden\n");
    assert_int_not_equal(access("/usr/local/lib/own-x", F_OK), 0);
    file = fopen(secret, "r");
    assert_int_equal(fgetc(file), '2');
    fclose(file);
    trial_release(&trial);
}

static void test_mounts_of_one_instance(void **state)
{
    (void)state;
    struct trial trial;
    char shards[2][96], path[208];
    trial_plan(&trial, 2,
               "cat /opt/ml/input/data/train/x; (echo 1 >/opt/ml/input/data/train/x) "
               "2>/dev/null || echo read only");
    struct job_mount mounts[2];
    for (int i = 0; i < 2; i++) {
        snprintf(shards[i], sizeof(shards[i]), "%s/shard-%d", trial.folder, i + 1);
        assert_int_equal(mkdir(shards[i], 0755), 0);
        snprintf(path, sizeof(path), "%s/x", shards[i]);
        FILE *file = fopen(path, "w");
        fprintf(file, "shard %d\n", i + 1);
        fclose(file);
        mounts[i] = (struct job_mount){shards[i], "/opt/ml/input/data/train", JOB_READ_ONLY};
        trial.instances[i].mounts = &mounts[i];
        trial.instances[i].mount_count = 1;
    }
    trial_start(&trial);
    trial_wait(&trial);
    expect_log(&trial, 0, "shard 1\nread only\n");
    expect_log(&trial, 1, "shard 2\nread only\n");
    trial_release(&trial);
}

static void test_a_root_of_its_own(void **state)
{
    (void)state;
    struct trial trial;
    char root[96], path[128];
    trial_plan(&trial, 1, "ls / | tr '\\n' ' '; echo; readlink /opt; echo $(ls /opt/ml)");
    static const char *const folders[] = {"", "/usr", "/etc", "/elsewhere"};
    static const char *const links[][2] = {{"usr/bin", "bin"},
                                           {"usr/lib", "lib"},
                                           {"usr/lib64", "lib64"},
                                           {"/../../elsewhere", "opt"}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/root%s", trial.folder, folders[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/root/%s", trial.folder, links[i][1]);
        assert_int_equal(symlink(links[i][0], path), 0);
    }
    snprintf(root, sizeof(root), "%s/root", trial.folder);
    const struct job_mount mounts[] = {{"/usr", "/usr", JOB_READ_ONLY}};
    trial.plan.root = root;
    trial.plan.mounts = mounts;
    trial.plan.mount_count = 1;
    trial_start(&trial);
    trial_wait(&trial);
    expect_log(&trial, 0,
               "bin dev elsewhere etc home lib lib64 opt proc root run sys tmp usr var \n"
               "/../../elsewhere\ncheckpoints code input model output\n");
    trial_release(&trial);
}

/* ---- several instances ---- */

/* Says one's name to whoever connects, and reads those of the others. */
static const char exchange[] =
    "import socket, sys, threading\n"
    "me, hosts = socket.gethostname(), ['algo-1', 'algo-2', 'algo-3']\n"
    "server = socket.create_server(('', 7777))\n"
    "def answer():\n"
    "    for _ in hosts: server.accept()[0].sendall(me.encode())\n"
    "threading.Thread(target=answer).start()\n"
    "import time\n"
    "def ask(host):\n"
    "    for _ in range(500):\n"
    "        try:\n"
    "            with socket.create_connection((host, 7777)) as c: return c.recv(100).decode()\n"
    "        except ConnectionRefusedError: time.sleep(0.01)\n"
    "print(me, [ask(h) for h in hosts], socket.gethostbyname(me), flush=True)\n";

static void test_three_instances_reach_each_other(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 3, exchange);
    trial.program[0] = (char *)"python3";
    trial_start(&trial);
    trial_wait(&trial);
    expect_log(&trial, 0, "algo-1 ['algo-1', 'algo-2', 'algo-3'] 10.77.1.1\n");
    expect_log(&trial, 1, "algo-2 ['algo-1', 'algo-2', 'algo-3'] 10.77.1.2\n");
    expect_log(&trial, 2, "algo-3 ['algo-1', 'algo-2', 'algo-3'] 10.77.1.3\n");
    trial_release(&trial);
}

/* A server outside, of which the instances know only the port of their own network. */
static int start_echo(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    pid_t pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pid == 0) {
        char data[4096];
        int client = accept(fd, NULL, NULL);
        for (ssize_t got; (got = read(client, data, sizeof(data))) > 0;) {
            if (write(client, data, (size_t)got) != got)
                _exit(1);
        }
        close(client);
    }
    close(fd);
    return pid;
}

static const char through_the_door[] =
    "import socket, threading\n"
    "data = bytes(range(256)) * 20000\n"
    "with socket.create_connection(('host', 8080)) as c:\n"
    "    def send(): c.sendall(data); c.shutdown(socket.SHUT_WR)\n"
    "    threading.Thread(target=send).start()\n"
    "    got = b''.join(iter(lambda: c.recv(65536), b''))\n"
    "print(got == data)\n"
    "with socket.create_connection(('host', 8081)) as c: print(c.recv(1) == b'')\n"
    "for port in (8080, 22, 80):\n"
    "    try: socket.create_connection(('127.0.0.1', port), 1); print('in')\n"
    "    except OSError: print('no')\n";

static void test_a_door_leads_to_one_address_only(void **state)
{
    (void)state;
    struct trial trial;
    int port;
    char to[64];
    pid_t echo = start_echo(&port);
    snprintf(to, sizeof(to), "127.0.0.1:%d", port);
    const struct job_door doors[] = {{8080, to}, {8081, "127.0.0.1:1"}};
    trial_plan(&trial, 2, through_the_door);
    trial.program[0] = (char *)"python3";
    trial.plan.doors = doors;
    trial.plan.door_count = 2;
    trial_start(&trial);
    trial_wait(&trial);
    kill(echo, SIGKILL);
    waitpid(echo, NULL, 0);
    expect_log(&trial, 0, "True\nTrue\nno\nno\nno\n");
    expect_log(&trial, 1, "True\nTrue\nno\nno\nno\n");
    trial_release(&trial);
}

/* The bridge has the same address when the ports of instances that have ended go. */
static void test_a_door_stays_when_other_instances_go(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 3,
               "import socket, time\n"
               "for _ in range(10 if socket.gethostname() == 'algo-1' else 2):\n"
               "    with socket.create_connection(('host', 8080), 2) as c: c.recv(1)\n"
               "    time.sleep(0.05)\n"
               "print('done')\n");
    const struct job_door door = {8080, "127.0.0.1:1"};
    trial.program[0] = (char *)"python3";
    trial.plan.doors = &door;
    trial.plan.door_count = 1;
    trial_start(&trial);
    trial_wait(&trial);
    expect_log(&trial, 0, "done\n");
    trial_release(&trial);
}

/* ---- ends ---- */

static void test_exit_codes_and_signals_are_told_apart(void **state)
{
    (void)state;
    struct trial trial;
    trial_run(&trial, 3,
              "case $(hostname) in algo-1) exit 3;; algo-2) kill -SEGV $$;; "
              "*) sleep 60 & echo tail without newline | tr -d '\\n'; esac");
    assert_int_equal(WEXITSTATUS(job_instances_wait_status(trial.all, 0)), 3);
    assert_int_equal(WTERMSIG(job_instances_wait_status(trial.all, 1)), SIGSEGV);
    assert_int_equal(job_instances_wait_status(trial.all, 2), 0);
    expect_log(&trial, 2, "tail without newline\n");
    assert_false(job_instances_out_of_memory(trial.all, 0));
    trial_release(&trial);
}

static void wait_for_log(struct trial *trial, const char *text)
{
    struct launch_loop loop = {0};
    int64_t deadline_ns = base_deadline_ns(TURNS_MS);
    while (strstr(log_of(trial, 0), text) == NULL && base_now_ns() < deadline_ns)
        trial_turn(trial, &loop);
    launch_loop_release(&loop);
    expect_in_log(trial, 0, text);
}

static void test_signals_reach_the_program(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 1,
               "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
    trial_start(&trial);
    wait_for_log(&trial, "ready");
    job_instances_signal(trial.all, 0, SIGTERM);
    trial_wait(&trial);
    expect_log(&trial, 0, "ready\ntold\n");
    assert_int_equal(WEXITSTATUS(job_instances_wait_status(trial.all, 0)), 7);
    trial_release(&trial);
}

static void test_a_kill_ends_the_whole_tree(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 1,
               "trap '' TERM INT HUP; setsid sh -c 'sleep 600 & sleep 600' & echo ready; "
               "while :; do sleep 600; done");
    trial_start(&trial);
    wait_for_log(&trial, "ready");
    job_instances_signal(trial.all, 0, SIGTERM);
    job_instances_kill(trial.all, 0);
    trial_wait(&trial);
    assert_int_equal(WTERMSIG(job_instances_wait_status(trial.all, 0)), SIGKILL);
    trial_release(&trial);
}

static void test_zombies_are_reaped(void **state)
{
    (void)state;
    struct trial trial;
    trial_run(&trial, 1,
              "for i in 1 2 3 4 5 6 7 8; do sh -c 'sh -c \"exit 0\" & exit 0'; done; sleep 0.2\n"
              "cat /proc/[0-9]*/stat | grep -c ' Z ' || echo none");
    expect_log(&trial, 0, "0\nnone\n");
    trial_release(&trial);
}

static void test_a_program_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct trial trial;
    int exec_errno = 0;
    trial_plan(&trial, 2, "");
    trial.program[0] = (char *)"train";
    expect_ok(job_instances_create(&trial.plan, &trial.all));
    assert_int_equal(job_instances_start(trial.all, &exec_errno), SHOAL_ERR_SYSTEM);
    assert_int_equal(exec_errno, ENOENT);
    assert_non_null(strstr(base_error_text(), "algo-1: executing train"));
    trial_release(&trial);
}

static void test_faults_of_a_plan_are_named(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 1, "true");
    trial.all = NULL;
    const struct job_mount missing = {"/nowhere/at/all", "/opt/ml/x", JOB_READ_ONLY};
    trial.plan.mounts = &missing;
    trial.plan.mount_count = 1;
    assert_int_equal(job_instances_create(&trial.plan, &trial.all), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "algo-1: reading /nowhere/at/all"));
    trial.plan.mount_count = 0;
    trial.plan.root = "/nowhere";
    assert_int_equal(job_instances_create(&trial.plan, &trial.all), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "the root folder /nowhere"));
    trial.plan.root = NULL;
    const struct job_door nowhere = {8080, "localhost:http"};
    trial.plan.doors = &nowhere;
    trial.plan.door_count = 1;
    assert_int_equal(job_instances_create(&trial.plan, &trial.all), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "no address in numbers"));
    trial.plan.door_count = 0;
    trial.plan.name = "no/name";
    assert_int_equal(job_instances_create(&trial.plan, &trial.all), SHOAL_ERR_ARGUMENT);
    trial_release(&trial);
}

static void test_memory_limits_hold_where_there_are_groups(void **state)
{
    (void)state;
    struct trial trial;
    trial_plan(&trial, 1, "x = bytearray(200 << 20); print(len(x))");
    trial.program[0] = (char *)"python3";
    trial.plan.limits.memory_bytes = UINT64_C(64) << 20;
    trial.plan.limits.process_count = 64;
    trial.plan.limits.core_thousands = 1000;
    trial_start(&trial);
    trial_wait(&trial);
    bool limited = job_instances_out_of_memory(trial.all, 0);
    int wait_status = job_instances_wait_status(trial.all, 0);
    trial_release(&trial);
    if (!limited && wait_status == 0)
        skip_because("no control group for memory can be made here");
    assert_true(limited);
    assert_int_equal(WTERMSIG(wait_status), SIGKILL);
}

/* ---- whoever made them goes away ---- */

static void test_nothing_is_left_when_the_maker_is_killed(void **state)
{
    (void)state;
    struct trial trial;
    int ready[2];
    char byte;
    trial_plan(&trial, 2, "trap '' TERM; sleep 98765.25 & sleep 98765.25");
    trial.plan.limits.memory_bytes = UINT64_C(1) << 30;
    assert_int_equal(pipe(ready), 0);
    pid_t maker = fork();
    if (maker == 0) {
        trial_start(&trial);
        while (process_count_with("98765.2[5]") < 1)
            base_sleep_ms(10);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(maker, SIGKILL);
    waitpid(maker, NULL, 0);
    int64_t deadline_ns = base_deadline_ns(TURNS_MS);
    while (process_count_with("98765.2[5]") > 0 && base_now_ns() < deadline_ns)
        base_sleep_ms(10);
    assert_int_equal(process_count_with("98765.2[5]"), 0);
    close(ready[0]);
    close(ready[1]);
    trial.all = NULL;
    trial_release(&trial);
}

/* ---- as a plain user ---- */

static int run_as_plain_user(void)
{
    struct trial trial;
    int exec_errno;
    if (setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 ||
        setresuid(65534, 65534, 65534) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0)
        return 1;
    trial_plan(&trial, 2, "id -u; hostname; touch /opt/ml/model/x /tmp/y && echo wrote");
    if (job_instances_create(&trial.plan, &trial.all) != SHOAL_OK) {
        fprintf(stderr, "%s\n", base_error_text());
        bool explained = strstr(base_error_text(), "this user may not make") != NULL;
        return explained ? 77 : 1;
    }
    expect_ok(job_instances_start(trial.all, &exec_errno));
    trial_wait(&trial);
    expect_log(&trial, 1, "0\nalgo-2\nwrote\n");
    trial_release(&trial);
    return 0;
}

static void test_a_plain_user_has_instances_too(void **state)
{
    (void)state;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_as_plain_user());
    waitpid(pid, &wait_status, 0);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 77)
        skip_because("plain users may not make user namespaces here, and the error says so");
    assert_int_equal(wait_status, 0);
}

static int probe(void **state)
{
    struct trial trial;
    (void)state;
    trial_plan(&trial, 1, "true");
    trial.all = NULL;
    enum shoal_status status = job_instances_create(&trial.plan, &trial.all);
    if (status != SHOAL_OK && strstr(base_error_text(), "may not make") != NULL) {
        print_message("skipped: %s\n", base_error_text());
        exit(77);
    }
    expect_ok(status);
    trial_release(&trial);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_instance_has_its_own_everything),
        cmocka_unit_test(test_the_machine_is_out_of_reach),
        cmocka_unit_test(test_mounts_and_hidden_places),
        cmocka_unit_test(test_mounts_of_one_instance),
        cmocka_unit_test(test_a_root_of_its_own),
        cmocka_unit_test(test_three_instances_reach_each_other),
        cmocka_unit_test(test_a_door_leads_to_one_address_only),
        cmocka_unit_test(test_a_door_stays_when_other_instances_go),
        cmocka_unit_test(test_exit_codes_and_signals_are_told_apart),
        cmocka_unit_test(test_signals_reach_the_program),
        cmocka_unit_test(test_a_kill_ends_the_whole_tree),
        cmocka_unit_test(test_zombies_are_reaped),
        cmocka_unit_test(test_a_program_that_is_not_there_is_named),
        cmocka_unit_test(test_faults_of_a_plan_are_named),
        cmocka_unit_test(test_memory_limits_hold_where_there_are_groups),
        cmocka_unit_test(test_nothing_is_left_when_the_maker_is_killed),
        cmocka_unit_test(test_a_plain_user_has_instances_too),
    };
    return cmocka_run_group_tests(tests, probe, NULL);
}
