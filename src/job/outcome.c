/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outcome.c: reasons and records. The failure file is in a folder that the job writes: it may be a
 * link to anywhere, a pipe, or huge, so it is opened without following links and read a little.
 */
#include "job/outcome.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"
#include "base/utf8.h"
#include "launch/process.h"

#define FAILURE_FILE     "ml/output/failure"
#define FAILURE_BYTES    (JOB_REASON_CHARS_MAX * 4)
#define TAIL_LINES_BYTES 1200
#define PATH_BYTES       4096
#define ENDING_CHARS_MAX 160
#define RECORD_BYTES     (64 << 10)

/* ---- names ---- */

static const char *const names[] = {[JOB_COMPLETED] = "Completed",
                                    [JOB_FAILED] = "Failed",
                                    [JOB_NOT_STARTED] = "NotStarted",
                                    [JOB_STOPPED] = "Stopped",
                                    [JOB_OUT_OF_TIME] = "MaxRuntimeExceeded",
                                    [JOB_INTERRUPTED] = "Interrupted"};

#define NAME_COUNT ((int)(sizeof(names) / sizeof(names[0])))

const char *job_outcome_name(enum job_outcome outcome)
{
    return names[outcome];
}

enum shoal_status job_outcome_parse(const char *name, enum job_outcome *out)
{
    for (int i = 0; i < NAME_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum job_outcome)i;
            return SHOAL_OK;
        }
    }
    return base_error(SHOAL_ERR_FORMAT, "'%s' is no outcome of a job", name);
}

/* ---- texts ---- */

void job_clean_text(const char *text, size_t bytes, size_t chars_max, char *out, size_t capacity)
{
    size_t used = 0, chars = 0;
    for (size_t at = 0; at < bytes && chars < chars_max;) {
        unsigned char first = (unsigned char)text[at];
        size_t count = base_utf8_bytes(text + at, bytes - at);
        const char *from = count > 0 ? text + at : BASE_UTF8_REPLACEMENT;
        size_t from_bytes = count > 0 ? count : strlen(BASE_UTF8_REPLACEMENT);
        at += count > 0 ? count : 1;
        if (count == 1 && (first < 0x20 || first == 0x7F) && first != '\n' && first != '\t')
            continue;
        if (used + from_bytes >= capacity)
            break;
        memcpy(out + used, from, from_bytes);
        used += from_bytes;
        chars++;
    }
    while (used > 0 && (out[used - 1] == '\n' || out[used - 1] == ' '))
        used--;
    out[used] = '\0';
}

/* The failure file's beginning; 0 bytes if there is none to be trusted. */
static size_t read_failure_file(const char *folder, char *out, size_t capacity)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    struct stat status;
    ssize_t got = 0;
    int folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return 0;
    int fd = (int)syscall(SYS_openat2, folder_fd, FAILURE_FILE, &how, sizeof(how));
    close(folder_fd);
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        got = read(fd, out, capacity);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

/* What stands behind the program's own words. */
static void describe_end(int wait_status, bool out_of_memory, char *out, size_t capacity)
{
    int code = launch_exit_code(wait_status);
    if (out_of_memory)
        snprintf(out, capacity,
                 ", exit code: %d (OutOfMemory: the instance's memory limit was "
                 "reached, and the kernel killed a process)",
                 code);
    else if (code == 128 + SIGKILL)
        snprintf(out, capacity,
                 ", exit code: %d (killed by SIGKILL, as the kernel does when memory "
                 "runs out)",
                 code);
    else if (WIFSIGNALED(wait_status))
        snprintf(out, capacity, ", exit code: %d (killed by %s)", code,
                 launch_signal_name(WTERMSIG(wait_status)));
    else
        snprintf(out, capacity, ", exit code: %d", code);
}

void job_failure_text(const struct job_plan *plan, const struct job_instances *instances, int index,
                      char *out, size_t capacity)
{
    char raw[FAILURE_BYTES + 1], words[FAILURE_BYTES + 1], ending[ENDING_CHARS_MAX];
    size_t bytes = read_failure_file(plan->instances[index].folder, raw, FAILURE_BYTES);
    if (bytes == 0) {
        job_log_tail(job_instances_log(instances, index), raw, TAIL_LINES_BYTES);
        bytes = strlen(raw);
    }
    describe_end(job_instances_wait_status(instances, index),
                 job_instances_out_of_memory(instances, index), ending, sizeof(ending));
    const char *kind = "AlgorithmError: ";
    size_t room = JOB_REASON_CHARS_MAX - strlen(kind) - strlen(ending);
    job_clean_text(raw, bytes, room, words, sizeof(words));
    snprintf(out, capacity, "%s%s%s", kind, words, ending);
}

/* ---- the record ---- */

static json_t *instance_json(const struct job_instances *instances, int index)
{
    char host[JOB_HOST_BYTES];
    int code = launch_exit_code(job_instances_wait_status(instances, index));
    json_t *object = json_pack("{s:s, s:i}", "host", job_host_name(index, host), "exit_code", code);
    if (job_instances_out_of_memory(instances, index))
        json_object_set_new(object, "out_of_memory", json_true());
    return object;
}

static json_t *record_json(const struct job_record *record, const struct job_instances *instances)
{
    json_t *list = json_array();
    for (int i = 0; instances != NULL && i < job_instances_count(instances); i++)
        json_array_append_new(list, instance_json(instances, i));
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:o}", "outcome", job_outcome_name(record->outcome),
                     "failure_reason", record->reason, "exit_code", record->exit_code, "started_ms",
                     (json_int_t)record->started_ms, "ended_ms", (json_int_t)record->ended_ms,
                     "instances", list);
}

/* Contents first on the disk, then the name. */
static bool write_synced(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    size_t bytes = strlen(text), done = 0;
    while (fd >= 0 && done < bytes) {
        ssize_t count = write(fd, text + done, bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    bool good = fd >= 0 && done == bytes && fsync(fd) == 0;
    int error_number = errno;
    if (fd >= 0)
        close(fd);
    errno = error_number;
    return good;
}

static bool reserve_path(const char *folder, char path[PATH_BYTES])
{
    return snprintf(path, PATH_BYTES, "%s/" JOB_EXIT_FILE ".reserve", folder) < PATH_BYTES;
}

void job_record_reserve(const char *folder)
{
    char path[PATH_BYTES];
    if (reserve_path(folder, path))
        base_file_reserve(path, RECORD_BYTES);
}

static bool write_renamed(const char *fresh, const char *path, const char *text)
{
    return write_synced(fresh, text) && rename(fresh, path) == 0;
}

enum shoal_status job_record_write(const char *folder, const struct job_record *record,
                                   const struct job_instances *instances)
{
    char path[PATH_BYTES], fresh[PATH_BYTES], reserve[PATH_BYTES];
    if (!reserve_path(folder, reserve) ||
        snprintf(fresh, sizeof(fresh), "%s/" JOB_EXIT_FILE ".new", folder) >= PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", folder);
    snprintf(path, sizeof(path), "%s/" JOB_EXIT_FILE, folder);
    json_t *document = record_json(record, instances);
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(1)) : NULL;
    json_decref(document);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's record");
    bool written = write_renamed(fresh, path, text) ||
                   (base_file_reserve_use(reserve) && write_renamed(fresh, path, text));
    int error_number = errno;
    free(text);
    if (!written)
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "writing %s", path);
    return SHOAL_OK;
}

enum shoal_status job_record_read(const char *folder, struct job_record *out)
{
    char path[PATH_BYTES];
    const char *outcome = NULL, *reason = NULL;
    json_int_t started_ms = 0, ended_ms = 0;
    json_error_t error;
    struct job_record record = {.outcome = JOB_COMPLETED};
    snprintf(path, sizeof(path), "%s/" JOB_EXIT_FILE, folder);
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (document == NULL && access(path, F_OK) != 0)
        return base_error(SHOAL_ERR_STATE, "the job in %s has left no record", folder);
    if (document == NULL ||
        json_unpack_ex(document, &error, 0, "{s:s, s:s, s:i, s:I, s:I}", "outcome", &outcome,
                       "failure_reason", &reason, "exit_code", &record.exit_code, "started_ms",
                       &started_ms, "ended_ms", &ended_ms) != 0) {
        json_decref(document);
        return base_error(SHOAL_ERR_FORMAT, "%s: %s", path, error.text);
    }
    enum shoal_status status = job_outcome_parse(outcome, &record.outcome);
    record.started_ms = started_ms;
    record.ended_ms = ended_ms;
    snprintf(record.reason, sizeof(record.reason), "%s", reason);
    json_decref(document);
    TRY(status);
    *out = record;
    return SHOAL_OK;
}
