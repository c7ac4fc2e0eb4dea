/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor_test.c: jobs under supervisors that are processes of their own (this program, started
 * again): how they end, what is recorded, and what is left when somebody is killed.
 */
#include "job/supervisor.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/outcome.h"
#include "support/files.h"
#include "support/fuzz.h"
#include "support/process_count.h"

#define PATIENCE_MS 20000

struct trial {
    char folder[64];
    int fd; /* to the supervisor */
};

static void expect_ok(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

/* A job of `count` instances whose program is a shell script; `more` are members of its
 * description. */
static void describe(struct trial *trial, int count, const char *script, const char *more)
{
    char log[128], host[96];
    snprintf(trial->folder, sizeof(trial->folder), "/tmp/shoal-supervisor-XXXXXX");
    assert_non_null(mkdtemp(trial->folder));
    json_t *instances = json_array();
    for (int i = 0; i < count; i++) {
        snprintf(host, sizeof(host), "%s/algo-%d", trial->folder, i + 1);
        snprintf(log, sizeof(log), "%s/log-%d", trial->folder, i + 1);
        assert_int_equal(mkdir(host, 0755), 0);
        json_array_append_new(instances, json_pack("{s:s}", "log", log));
    }
    json_t *job = json_pack("{s:s, s:[s,s,s], s:o, s:{s:s}, s:i, s:i}", "name", "trial", "program",
                            "sh", "-c", script, "instances", instances, "environment", "PATH",
                            "/usr/local/bin:/usr/bin:/bin", "grace_s", 10, "failure_grace_s", 1);
    json_t *extra = json_loads(more, 0, NULL);
    json_object_update(job, extra);
    char *text = json_dumps(job, 0);
    put_file(trial->folder, "job.json", text);
    free(text);
    json_decref(extra);
    json_decref(job);
}

static void start(struct trial *trial, int count, const char *script, const char *more)
{
    describe(trial, count, script, more);
    expect_ok(job_supervisor_start(trial->folder));
    if (job_supervisor_connect(trial->folder, &trial->fd) != SHOAL_OK)
        trial->fd = -1; /* it has ended */
}

static void tell(struct trial *trial, const char *command)
{
    json_t *answer;
    expect_ok(job_supervisor_ask(trial->fd, command, &answer));
    json_decref(answer);
}

static void wait_for_end(struct trial *trial)
{
    struct pollfd poller = {trial->fd, POLLIN, 0};
    char byte;
    if (trial->fd < 0)
        return;
    assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
    assert_true(read(trial->fd, &byte, 1) <= 0); /* or reset, if it was never accepted */
    close(trial->fd);
    trial->fd = -1;
}

static struct job_record record_of(struct trial *trial)
{
    struct job_record record;
    enum job_presence presence;
    wait_for_end(trial);
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    do
        expect_ok(job_supervisor_find(trial->folder, &presence));
    while (presence == JOB_RUNS && base_now_ns() < deadline_ns);
    assert_int_equal(presence, JOB_ENDED);
    expect_ok(job_record_read(trial->folder, &record));
    return record;
}

static void expect_record(struct trial *trial, enum job_outcome outcome, int exit_code,
                          const char *reason)
{
    struct job_record record = record_of(trial);
    assert_string_equal(record.reason, reason);
    assert_string_equal(job_outcome_name(record.outcome), job_outcome_name(outcome));
    assert_int_equal(record.exit_code, exit_code);
    assert_true(record.ended_ms >= record.started_ms);
}

/* Waits until the first instance's log holds the text. */
static void wait_for_log(struct trial *trial, const char *text)
{
    char path[128], log[4096] = "";
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    snprintf(path, sizeof(path), "%s/log-1", trial->folder);
    while (strstr(log, text) == NULL && base_now_ns() < deadline_ns) {
        base_sleep_ms(5);
        FILE *file = fopen(path, "r");
        size_t bytes = file != NULL ? fread(log, 1, sizeof(log) - 1, file) : 0;
        log[bytes] = '\0';
        if (file != NULL)
            fclose(file);
    }
    assert_non_null(strstr(log, text));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

/* Nothing of the job may be mounted in its folder, else this fails. */
static void finish(struct trial *trial)
{
    assert_int_equal(nftw(trial->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
    assert_int_equal(base_memory_blocks(), 0);
}

/* ---- how jobs end ---- */

static void test_a_job_completes(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 3, "echo hello from $(hostname)", "{}");
    expect_record(&trial, JOB_COMPLETED, 0, "");
    wait_for_log(&trial, "hello from algo-1\n");
    finish(&trial);
}

static void test_last_lines_are_the_reason(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "echo Traceback; echo 'ValueError: bad data' >&2; exit 3", "{}");
    expect_record(&trial, JOB_FAILED, 3,
                  "AlgorithmError: Traceback\nValueError: bad data, exit code: 3");
    finish(&trial);
}

static void test_the_failure_file_is_the_reason(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1,
          "echo noise; printf 'ExecuteUserScriptError:\\nbad \\377 \\033[1m' "
          ">/opt/ml/output/failure; exit 1",
          "{}");
    expect_record(&trial, JOB_FAILED, 1,
                  "AlgorithmError: ExecuteUserScriptError:\nbad \xEF\xBF\xBD [1m, exit code: 1");
    finish(&trial);
}

static void test_a_reason_has_at_most_1024_characters(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "head -c 100000 /dev/zero | tr '\\0' x >/opt/ml/output/failure; exit 1", "{}");
    struct job_record record = record_of(&trial);
    assert_int_equal(strlen(record.reason), JOB_REASON_CHARS_MAX);
    assert_non_null(strstr(record.reason, "xxx, exit code: 1"));
    finish(&trial);
}

static void test_a_failure_file_that_leads_away_is_not_read(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "ln -s /etc/passwd /opt/ml/output/failure; echo own; exit 1",
        "mkfifo /opt/ml/output/failure; echo own; exit 1",
        "rm -r /opt/ml/output; ln -s /etc /opt/ml/output; echo own; exit 1"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct trial trial;
        start(&trial, 1, scripts[i], "{}");
        expect_record(&trial, JOB_FAILED, 1, "AlgorithmError: own, exit code: 1");
        finish(&trial);
    }
}

static void test_a_kill_from_inside_hints_at_memory(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "echo at work; kill -9 $$", "{}");
    expect_record(&trial, JOB_FAILED, 137,
                  "AlgorithmError: at work, exit code: 137 (killed by SIGKILL, as the kernel does "
                  "when memory runs out)");
    finish(&trial);
}

static void test_a_command_that_does_not_exist(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 2, "", "{\"program\": [\"train\"]}");
    expect_record(&trial, JOB_FAILED, 127,
                  "AlgorithmError: " JOB_CANNOT_START
                  "algo-1: executing train: No such file or directory, exit code: "
                  "127");
    finish(&trial);
}

static void test_a_job_that_this_machine_cant_run(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "true", "{\"root\": \"/nowhere\"}");
    expect_record(
        &trial, JOB_NOT_STARTED, 125,
        "InternalServerError: making the instances of job trial: algo-1: opening the root "
        "folder /nowhere: No such file or directory");
    finish(&trial);
}

static void test_one_instance_dies_and_the_others_are_ended(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 3,
          "trap '' TERM; test $(hostname) != algo-2 || { echo lost my data; exit 5; }; "
          "while :; do sleep 1; done",
          "{}");
    struct job_record record = record_of(&trial);
    assert_int_equal(record.outcome, JOB_FAILED);
    assert_string_equal(record.reason, "AlgorithmError: lost my data, exit code: 5");
    finish(&trial);
}

/* ---- commands ---- */

static void test_a_stop_is_a_SIGTERM_first(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 2, "trap 'echo saving; exit 1' TERM; echo ready; while :; do sleep 0.02; done",
          "{}");
    wait_for_log(&trial, "ready");
    tell(&trial, "{\"command\": \"stop\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    wait_for_log(&trial, "saving");
    finish(&trial);
}

static void test_who_ignores_SIGTERM_is_killed(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "trap '' TERM; echo ready; while :; do sleep 0.02; done", "{\"grace_s\": 1}");
    wait_for_log(&trial, "ready");
    tell(&trial, "{\"command\": \"stop\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    finish(&trial);
}

static void test_a_kill_waits_for_nobody(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 2, "trap '' TERM; echo ready; sleep 600", "{\"grace_s\": 600}");
    wait_for_log(&trial, "ready");
    tell(&trial, "{\"command\": \"kill\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    finish(&trial);
}

static void test_the_time_limit(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "exec sleep 600", "{\"max_runtime_s\": 1}");
    expect_record(&trial, JOB_OUT_OF_TIME, 0, "");
    finish(&trial);
    start(&trial, 1, "exec sleep 600", "{\"max_runtime_s\": 600}");
    tell(&trial, "{\"command\": \"limit\", \"max_runtime_s\": 1}");
    expect_record(&trial, JOB_OUT_OF_TIME, 0, "");
    finish(&trial);
}

static void test_status_and_commands_that_make_no_sense(void **state)
{
    (void)state;
    struct trial trial;
    json_t *answer;
    static const char *const nonsense[] = {
        "", "{", "[]", "{\"command\": \"fly\"}", "{\"command\": \"limit\"}", "\"stop\"", "\xff"};
    start(&trial, 2, "echo ready; exec sleep 600", "{}");
    wait_for_log(&trial, "ready");
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
        assert_int_equal(job_supervisor_ask(trial.fd, nonsense[i], &answer), SHOAL_ERR_STATE);
    expect_ok(job_supervisor_ask(trial.fd, "{\"command\": \"status\"}", &answer));
    assert_string_equal(json_string_value(json_object_get(answer, "state")), "running");
    assert_int_equal(json_array_size(json_object_get(answer, "instances")), 2);
    json_decref(answer);
    tell(&trial, "{\"command\": \"kill\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    finish(&trial);
}

/* Lines of one connection each: an answer to each line, or the end. */
static void take_any_lines(void *user, char *text, size_t count, uint64_t round)
{
    const struct trial *trial = user;
    char answers[8192];
    int fd;
    (void)round;
    expect_ok(job_supervisor_connect(trial->folder, &fd));
    for (size_t at = 0, length; at < count; at += length) {
        char *end = memchr(text + at, '\n', count - at);
        length = end != NULL ? (size_t)(end - text) + 1 - at : count - at;
        if (send(fd, text + at, length, MSG_NOSIGNAL) != (ssize_t)length)
            break;
    }
    shutdown(fd, SHUT_WR);
    while (recv(fd, answers, sizeof(answers), 0) > 0) {}
    close(fd);
}

static void test_any_line_is_answered(void **state)
{
    (void)state;
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("{\"command\": \"status\"}\n{\"command\": \"limit\", \"max_runtime_s\": 600}\n"),
        FUZZ_TEXT("{\"command\": \"fly\"}\n[1, null]\n")};
    static const char *const words[] = {
        "\"status\"", "\"limit\"", "\"max_runtime_s\": ", "null", "\n", "[[[[", "\\ud83d", NULL};
    struct trial trial;
    json_t *answer;
    struct fuzz fuzz = FUZZ(texts, words, 300, .bytes_max = 3000);
    start(&trial, 1, "echo ready; exec sleep 600", "{}");
    wait_for_log(&trial, "ready");
    fuzz_run(&fuzz, take_any_lines, &trial);
    expect_ok(job_supervisor_ask(trial.fd, "{\"command\": \"status\"}", &answer));
    json_decref(answer);
    tell(&trial, "{\"command\": \"kill\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    finish(&trial);
}

static void test_clients_that_misbehave_are_dropped(void **state)
{
    (void)state;
    struct trial trial;
    int fds[40];
    char noise[8192];
    memset(noise, 'x', sizeof(noise));
    start(&trial, 1, "exec sleep 600", "{}");
    for (int i = 0; i < 40; i++) {
        expect_ok(job_supervisor_connect(trial.folder, &fds[i]));
        ssize_t sent = send(fds[i], noise, sizeof(noise), MSG_NOSIGNAL);
        (void)sent;
    }
    tell(&trial, "{\"command\": \"kill\"}");
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    expect_record(&trial, JOB_STOPPED, 0, "");
    finish(&trial);
}

/* ---- who is killed ---- */

static pid_t supervisor_pid(struct trial *trial)
{
    json_t *answer;
    expect_ok(job_supervisor_ask(trial->fd, "{\"command\": \"status\"}", &answer));
    pid_t pid = (pid_t)json_integer_value(json_object_get(answer, "pid"));
    json_decref(answer);
    assert_true(pid > 1);
    return pid;
}

static void test_a_killed_supervisor_leaves_nothing(void **state)
{
    (void)state;
    struct trial trial;
    enum job_presence presence;
    start(&trial, 2, "trap '' TERM; echo ready; sleep 87654.75", "{}");
    wait_for_log(&trial, "ready");
    kill(supervisor_pid(&trial), SIGKILL);
    wait_for_end(&trial);
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    while (process_count_with("87654.7[5]") > 0 && base_now_ns() < deadline_ns)
        base_sleep_ms(10);
    assert_int_equal(process_count_with("87654.7[5]"), 0);
    expect_ok(job_supervisor_find(trial.folder, &presence));
    assert_int_equal(presence, JOB_GONE);
    finish(&trial);
}

static void test_a_terminated_supervisor_says_so(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "echo ready; exec sleep 600", "{}");
    wait_for_log(&trial, "ready");
    kill(supervisor_pid(&trial), SIGTERM);
    expect_record(&trial, JOB_INTERRUPTED, 0, "");
    finish(&trial);
}

/* The service is a process that starts the supervisor and is killed; another one finds the job. */
static void test_a_killed_service_finds_its_job_again(void **state)
{
    (void)state;
    struct trial trial;
    enum job_presence presence;
    int wait_status;
    describe(&trial, 1, "echo ready; sleep 0.3; echo done", "{}");
    pid_t service = fork();
    if (service == 0) {
        expect_ok(job_supervisor_start(trial.folder));
        kill(getpid(), SIGKILL);
    }
    waitpid(service, &wait_status, 0);
    assert_true(WIFSIGNALED(wait_status));
    expect_ok(job_supervisor_find(trial.folder, &presence));
    assert_int_equal(presence, JOB_RUNS);
    expect_ok(job_supervisor_connect(trial.folder, &trial.fd));
    expect_record(&trial, JOB_COMPLETED, 0, "");
    wait_for_log(&trial, "done");
    finish(&trial);
}

static void test_a_job_runs_once(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "echo ready; exec sleep 600", "{}");
    assert_int_equal(job_supervisor_start(trial.folder), SHOAL_ERR_STATE);
    assert_non_null(strstr(base_error_text(), "runs already"));
    tell(&trial, "{\"command\": \"kill\"}");
    expect_record(&trial, JOB_STOPPED, 0, "");
    assert_int_equal(job_supervisor_start(trial.folder), SHOAL_ERR_STATE);
    assert_non_null(strstr(base_error_text(), "has ended before"));
    finish(&trial);
}

/* ---- companions: this program again, see main ---- */

static void test_a_companion_lives_as_long_as_the_job(void **state)
{
    (void)state;
    struct trial trial;
    int64_t deadline_ns = base_deadline_ns(PATIENCE_MS);
    start(&trial, 1, "until [ -s /opt/ml/input/pid ]; do sleep 0.01; done; echo ok",
          "{\"companions\": [[\"companion\", \"stays\"]]}");
    expect_record(&trial, JOB_COMPLETED, 0, "");
    char path[128], text[32] = "";
    snprintf(path, sizeof(path), "%s/algo-1/ml/input/pid", trial.folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    while (kill((pid_t)atoi(text), 0) == 0 && base_now_ns() < deadline_ns)
        base_sleep_ms(1);
    assert_int_equal(kill((pid_t)atoi(text), 0), -1);
    finish(&trial);
}

static void test_a_companion_that_ends_fails_the_job(void **state)
{
    (void)state;
    struct trial trial;
    start(&trial, 1, "sleep 60", "{\"companions\": [[\"companion\", \"ends\"]]}");
    expect_record(&trial, JOB_FAILED, 125, "ClientError: the last line");
    finish(&trial);
}

/* The supervisor works in the job's folder. */
static int companion(const char *kind)
{
    if (strcmp(kind, "ends") == 0) {
        fprintf(stderr, "first\n\nClientError: the last line\n");
        return 1;
    }
    char path[] = "algo-1/ml/input/pid";
    FILE *file;
    while ((file = fopen(path, "w")) == NULL)
        base_sleep_ms(1); /* until the instance's folder is there */
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], JOB_SUPERVISOR_COMMAND) == 0)
        return job_supervisor_run(argv[2], STDOUT_FILENO) == SHOAL_OK ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "companion") == 0)
        return companion(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_completes),
        cmocka_unit_test(test_last_lines_are_the_reason),
        cmocka_unit_test(test_the_failure_file_is_the_reason),
        cmocka_unit_test(test_a_reason_has_at_most_1024_characters),
        cmocka_unit_test(test_a_failure_file_that_leads_away_is_not_read),
        cmocka_unit_test(test_a_kill_from_inside_hints_at_memory),
        cmocka_unit_test(test_a_command_that_does_not_exist),
        cmocka_unit_test(test_a_job_that_this_machine_cant_run),
        cmocka_unit_test(test_one_instance_dies_and_the_others_are_ended),
        cmocka_unit_test(test_a_stop_is_a_SIGTERM_first),
        cmocka_unit_test(test_who_ignores_SIGTERM_is_killed),
        cmocka_unit_test(test_a_kill_waits_for_nobody),
        cmocka_unit_test(test_the_time_limit),
        cmocka_unit_test(test_status_and_commands_that_make_no_sense),
        cmocka_unit_test(test_any_line_is_answered),
        cmocka_unit_test(test_clients_that_misbehave_are_dropped),
        cmocka_unit_test(test_a_killed_supervisor_leaves_nothing),
        cmocka_unit_test(test_a_terminated_supervisor_says_so),
        cmocka_unit_test(test_a_killed_service_finds_its_job_again),
        cmocka_unit_test(test_a_job_runs_once),
        cmocka_unit_test(test_a_companion_lives_as_long_as_the_job),
        cmocka_unit_test(test_a_companion_that_ends_fails_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
