/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_run.c: see start_run.h: the steps from an instance's files to the script's end.
 *
 * Failures of a step have the names that the public toolkit gives them, in its form, because people
 * and programs look for them in a job's failure reason.
 */
#include "job/start_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "job/outcome.h"
#include "job/start.h"
#include "job/start_command.h"
#include "job/start_facts.h"
#include "job/start_process.h"
#include "job/start_state.h"
#include "launch/process.h"

#define PATH_BYTES    4096
#define TEXT_BYTES    4096
#define WORDS_SHOWN   300 /* bytes of a failed command */
#define LINES_SHOWN   600 /* and of its last lines, so that both are in 1,024 */
#define CONFIG_FOLDER "/opt/ml/input/config"
#define OUTPUT_FOLDER "/opt/ml/output"
#define HOSTS_FILE    "/run/shoal/resourceconfig.json"
#define EXIT_FAILED   1

struct run {
    const struct job_start_options *options;
    json_t *variables;
    struct start_facts facts;
    enum start_entry entry;
    struct start_command command;
};

/* ---- what is said ---- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("shoal: ", stdout);
    vprintf(format, arguments);
    fputc('\n', stdout);
    va_end(arguments);
    fflush(stdout);
}

/* The first failure counts: a script may have written its own. */
static void write_failure(const char *text)
{
    int fd =
        open(OUTPUT_FOLDER "/failure", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return;
    ssize_t written = write(fd, text, strlen(text));
    (void)written; /* the log has it too */
    close(fd);
}

static int fail(int exit_code, const char *text)
{
    fprintf(stderr, "shoal: %s\n", text);
    write_failure(text);
    return exit_code;
}

/* A step of ours went wrong: the thread's error text says what. */
static int fail_step(void)
{
    return fail(EXIT_FAILED, base_error_text());
}

static void write_success(void)
{
    int fd = open(OUTPUT_FOLDER "/success", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0)
        close(fd);
}

static void join(const json_t *words, char *out, size_t bytes)
{
    size_t used = 0;
    *out = '\0';
    for (size_t i = 0; i < json_array_size(words) && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i > 0 ? " " : "",
                                 json_string_value(json_array_get(words, i)));
}

static int fail_command(const char *name, int exit_code, struct start_tail *tail,
                        const json_t *words)
{
    char text[TEXT_BYTES], command[WORDS_SHOWN];
    join(words, command, sizeof(command));
    snprintf(text, sizeof(text), "%s:\nExitCode %d\nErrorMessage \"%s\"%s\nCommand \"%s\"", name,
             exit_code, start_tail_lines(tail, LINES_SHOWN),
             exit_code == 128 + SIGKILL
                 ? "\nExtraInfo \"OutOfMemory: Process killed by SIGKILL (signal 9)\""
                 : "",
             command);
    write_failure(text);
    return exit_code;
}

/* ---- variables ---- */

static enum shoal_status take_variables(struct run *run)
{
    extern char **environ;
    run->variables = json_object();
    for (char **at = environ; *at != NULL; at++) {
        const char *equals = strchr(*at, '=');
        if (equals == NULL || equals == *at)
            continue;
        json_t *name = json_stringn(*at, (size_t)(equals - *at));
        json_t *value = json_string(equals + 1); /* NULL when it is no UTF-8 */
        if (name != NULL && value != NULL)
            json_object_set(run->variables, json_string_value(name), value);
        json_decref(name);
        json_decref(value);
    }
    return start_python_variables(&run->options->python, START_PYTHON_FOLDER, run->variables);
}

static enum shoal_status make_python(const struct job_start_options *options)
{
    if (mkdir("/run/shoal", 0755) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder /run/shoal");
    return start_python_make(&options->python, START_PYTHON_FOLDER, START_PROGRAM);
}

/* ---- another program than the script ---- */

static int become(struct run *run, char *const *words)
{
    extern char **environ;
    char **environment, text[TEXT_BYTES];
    if (start_list_variables(run->variables, &environment) != SHOAL_OK)
        return fail_step();
    environ = environment; /* execvp looks in its PATH */
    execvp(words[0], words);
    int error_number = errno;
    snprintf(text, sizeof(text), JOB_CANNOT_START "exec: \"%.200s\": %s", words[0],
             error_number == ENOENT ? "executable file not found in $PATH"
                                    : strerror(error_number));
    start_list_free(environment);
    return fail(error_number == ENOENT ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE, text);
}

/* A job without a script is one for an image with a `train` of its own. */
static int become_train(struct run *run)
{
    char train[] = "train";
    char *const words[] = {train, NULL};
    return become(run, words);
}

/* ---- the code ---- */

static bool is_empty(const char *folder)
{
    DIR *list = opendir(folder);
    bool empty = true;
    for (struct dirent *entry; list != NULL && empty && (entry = readdir(list)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (list != NULL)
        closedir(list);
    return empty;
}

static enum shoal_status run_plain(struct run *run, json_t *words, const char *what)
{
    struct start_tail tail = {0};
    int exit_code = 0;
    enum shoal_status status = start_process_run(words, run->variables, "/", &tail, &exit_code);
    json_decref(words);
    if (status == SHOAL_OK && exit_code != 0)
        status = base_error(SHOAL_ERR_SYSTEM, "%s failed: %s", what,
                            start_tail_lines(&tail, LINES_SHOWN));
    return status;
}

/* What the service has not put there: a folder or an archive that the image has. */
static enum shoal_status copy_code(struct run *run)
{
    const char *from = run->facts.submitted;
    struct stat status;
    char folder[PATH_BYTES];
    if (strncmp(from, "file://", 7) == 0)
        from += 7;
    if (stat(from, &status) != 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the code of this job, %.1000s, is neither in " JOB_START_DIRECTORY
                          " nor in the instance",
                          run->facts.submitted);
    snprintf(folder, sizeof(folder), "%s/.", from);
    json_t *words =
        S_ISDIR(status.st_mode)
            ? json_pack("[s, s, s, s]", "cp", "-a", folder, JOB_START_DIRECTORY)
            : json_pack("[s, s, s, s, s]", "tar", "-xf", from, "-C", JOB_START_DIRECTORY);
    return run_plain(run, words, "taking the code over");
}

static enum shoal_status find_code(struct run *run)
{
    char path[PATH_BYTES];
    if (is_empty(JOB_START_DIRECTORY) && strcmp(run->facts.submitted, JOB_START_DIRECTORY) != 0)
        TRY(copy_code(run));
    run->entry = start_entry_find(JOB_START_DIRECTORY, run->facts.program);
    if (run->entry == START_PACKAGE)
        return SHOAL_OK;
    snprintf(path, sizeof(path), "%s%s", *run->facts.program == '/' ? "" : JOB_START_DIRECTORY "/",
             run->facts.program);
    if (access(path, F_OK) != 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the entry point %.1000s is not there: " JOB_START_DIRECTORY
                          " holds what the job's source_dir held",
                          run->facts.program);
    if (run->entry == START_SHELL && chmod(path, 0777) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making %s executable", path);
    return SHOAL_OK;
}

/* The exit code; 0 when there is nothing to install. */
static int install(struct run *run)
{
    bool has_list = access(JOB_START_DIRECTORY "/requirements.txt", F_OK) == 0;
    bool is_package = run->entry == START_PACKAGE;
    struct start_tail tail = {0};
    int exit_code = 0;
    if (run->entry == START_SHELL || (!has_list && !is_package))
        return 0;
    json_t *words = json_pack("[s, s, s, s]", START_PYTHON_PROGRAM, "-m", "pip", "install");
    if (is_package && access(JOB_START_DIRECTORY "/pyproject.toml", F_OK) != 0)
        json_array_append_new(words, json_string("--no-build-isolation"));
    if (is_package)
        json_array_append_new(words, json_string("."));
    if (has_list) {
        json_array_append_new(words, json_string("-r"));
        json_array_append_new(words, json_string("requirements.txt"));
    }
    say("installing %s", is_package ? "the package" : "requirements.txt");
    if (start_process_run(words, run->variables, JOB_START_DIRECTORY, &tail, &exit_code) !=
        SHOAL_OK)
        exit_code = fail_step();
    else if (exit_code != 0)
        fail_command(is_package ? "InstallModuleError" : "InstallRequirementsError", exit_code,
                     &tail, words);
    json_decref(words);
    return exit_code;
}

/* ---- the script ---- */

static void say_command(const struct run *run)
{
    char text[TEXT_BYTES];
    join(run->command.shown, text, sizeof(text));
    if (run->command.way != NULL)
        say("%s on %zu instances: %s", run->command.way,
            json_array_size(run->facts.distribution_hosts), text);
    else
        say("%s", text);
}

static int run_command(struct run *run)
{
    struct start_tail tail = {0};
    int exit_code = 0, beside = -1;
    say_command(run);
    if (run->command.background != NULL)
        beside = start_process_begin(run->command.background, run->variables, JOB_START_DIRECTORY);
    if (start_process_run(run->command.words, run->variables, JOB_START_DIRECTORY, &tail,
                          &exit_code) != SHOAL_OK)
        exit_code = fail_step();
    else if (exit_code != 0)
        fail_command("ExecuteUserScriptError", exit_code, &tail, run->command.shown);
    else
        write_success();
    if (beside > 0) {
        kill(beside, SIGKILL);
        waitpid(beside, NULL, 0);
    }
    return exit_code;
}

static int train(struct run *run)
{
    if (start_facts_read(CONFIG_FOLDER, &run->facts) != SHOAL_OK)
        return fail_step();
    if (*run->facts.program == '\0')
        return become_train(run);
    if (start_facts_variables(&run->facts, run->variables) != SHOAL_OK ||
        find_code(run) != SHOAL_OK)
        return fail_step();
    int exit_code = install(run);
    if (exit_code != 0)
        return exit_code;
    if (start_command_make(&run->facts, run->entry, START_PYTHON_PROGRAM, HOSTS_FILE,
                           run->variables, &run->command) != SHOAL_OK)
        return fail_step();
    return run_command(run);
}

int job_start_run(const struct job_start_options *options)
{
    struct run run = {.options = options};
    int exit_code;
    if (make_python(options) != SHOAL_OK || take_variables(&run) != SHOAL_OK)
        exit_code = fail_step();
    else
        exit_code = options->words != NULL ? become(&run, options->words) : train(&run);
    start_command_release(&run.command);
    start_facts_release(&run.facts);
    json_decref(run.variables);
    return exit_code;
}

int job_start_rank(char *const *words)
{
    start_rank_variables();
    execvp(words[0], words);
    int error_number = errno;
    fprintf(stderr, "shoal job-start: %s: %s\n", words[0], strerror(error_number));
    return error_number == ENOENT ? LAUNCH_EXIT_NOT_FOUND : LAUNCH_EXIT_NOT_EXECUTABLE;
}
