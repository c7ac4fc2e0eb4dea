/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe.c: channels in Pipe mode, before the job starts: which records there are, links to their
 * files, and the first FIFO of each host, so that the program finds it.
 */
#include "channel/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/bucket.h"
#include "channel/objects.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define RECORD_MAGIC     UINT32_C(0xCED7230A)
#define FILES_IN_FOLDER  4096
#define REFERENCE_ENDING "-ref"

/* ---- names ---- */

void channel_pipe_file(int64_t number, char out[CHANNEL_PIPE_FILE_BYTES])
{
    snprintf(out, CHANNEL_PIPE_FILE_BYTES, "files/%" PRIx64 "/%" PRIx64,
             (uint64_t)number / FILES_IN_FOLDER, (uint64_t)number);
}

void channel_pipe_path(const char *host, const char *channel, uint64_t epoch, char *out,
                       size_t capacity)
{
    snprintf(out, capacity, "%s/ml/input/data/%s_%" PRIu64, host, channel, epoch);
}

/* Removes what is there, or makes a FIFO instead of it. */
static enum shoal_status replace(int job_fd, const char *path, bool by_fifo)
{
    const char *name;
    int fd;
    TRY(channel_folder_above(job_fd, path, &fd, &name));
    enum shoal_status status = channel_tree_remove(fd, name);
    if (status == SHOAL_OK && by_fifo && mkfifoat(fd, name, 0644) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the FIFO %.300s", path);
    close(fd);
    return status;
}

enum shoal_status channel_pipe_remove(int job_fd, const char *host, const char *channel,
                                      uint64_t epoch)
{
    char path[CHANNEL_PATH_BYTES];
    channel_pipe_path(host, channel, epoch, path, sizeof(path));
    return replace(job_fd, path, false);
}

enum shoal_status channel_pipe_make(int job_fd, const char *host, const char *channel,
                                    uint64_t epoch)
{
    char path[CHANNEL_PATH_BYTES];
    channel_pipe_path(host, channel, epoch, path, sizeof(path));
    return replace(job_fd, path, true);
}

int channel_record_head(uint32_t bytes, unsigned char head[CHANNEL_RECORD_HEAD_BYTES])
{
    for (int i = 0; i < 4; i++) {
        head[i] = (unsigned char)(RECORD_MAGIC >> 8 * i);
        head[4 + i] = (unsigned char)(bytes >> 8 * i);
    }
    return (int)(-bytes & 3u);
}

/* ---- records ---- */

struct recording {
    const struct channel_job *job;
    const struct channel_input *input;
    int folder_fd;
    FILE *records;
    int64_t file_count;
};

static enum shoal_status write_line(struct recording *recording, json_t *line)
{
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (text == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a record");
    bool is_long = strlen(text) >= CHANNEL_PIPE_LINE_BYTES;
    bool is_written = fprintf(recording->records, "%s\n", text) > 0;
    free(text);
    if (is_long)
        return base_error(SHOAL_ERR_LIMIT, "a record's attributes take more than 4 MiB");
    if (!is_written)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing the list of records");
    return SHOAL_OK;
}

static enum shoal_status link_file(struct recording *recording, const struct channel_uri *uri,
                                   int64_t *number)
{
    char path[CHANNEL_PIPE_FILE_BYTES];
    *number = recording->file_count++;
    channel_pipe_file(*number, path);
    return channel_bucket_link_one(recording->job, uri, recording->folder_fd, path);
}

static enum shoal_status record_object(void *user, const struct channel_object *object)
{
    struct recording *recording = user;
    int64_t number;
    if (object->is_folder)
        return SHOAL_OK;
    TRY(link_file(recording, &object->uri, &number));
    return write_line(recording, json_pack("[I]", (json_int_t)number));
}

/* ---- augmented manifests: a line of JSON for each record ---- */

static bool is_reference(const char *attribute)
{
    size_t bytes = strlen(attribute), end = sizeof(REFERENCE_ENDING) - 1;
    return bytes > end && strcmp(attribute + bytes - end, REFERENCE_ENDING) == 0;
}

static enum shoal_status bad_line(const struct recording *recording, int64_t number,
                                  const char *why, const char *what)
{
    return base_error(SHOAL_ERR_ARGUMENT,
                      "the augmented manifest %.300s, line %" PRId64 ": %s%.200s",
                      recording->input->uri_text, number, why, what);
}

/* An attribute of a record: a text as it is, all else as JSON; a reference as its file. */
static enum shoal_status take_attribute(struct recording *recording, const json_t *line,
                                        const char *name, int64_t number, json_t *record)
{
    const json_t *value = json_object_get(line, name);
    const char *text = json_string_value(value);
    if (value == NULL)
        return bad_line(recording, number, "it has no attribute ", name);
    if (is_reference(name)) {
        struct channel_uri uri;
        int64_t file;
        if (text == NULL)
            return bad_line(recording, number, "no place in S3 is in ", name);
        TRY(channel_uri_parse(text, &uri));
        TRY(link_file(recording, &uri, &file));
        json_array_append_new(record, json_integer(file));
    } else if (text != NULL) {
        json_array_append_new(record, json_string(text));
    } else {
        char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        json_array_append_new(record, json_string(dumped != NULL ? dumped : ""));
        free(dumped);
    }
    return SHOAL_OK;
}

static enum shoal_status record_line(struct recording *recording, const char *text, size_t bytes,
                                     int64_t number)
{
    size_t i;
    json_error_t error;
    json_t *record = json_array(), *name, *line = json_loadb(text, bytes, 0, &error);
    enum shoal_status status = SHOAL_OK;
    if (!json_is_object(line))
        status = bad_line(recording, number,
                          "it is no object of JSON: ", line == NULL ? error.text : "");
    json_array_foreach(recording->input->attributes, i, name)
    {
        if (status == SHOAL_OK)
            status = take_attribute(recording, line, json_string_value(name), number, record);
    }
    json_decref(line);
    if (status == SHOAL_OK)
        return write_line(recording, record);
    json_decref(record);
    return status;
}

static enum shoal_status record_lines(struct recording *recording, char *text, size_t bytes)
{
    int64_t number = 0, records = 0;
    for (size_t at = 0; at < bytes; number++) {
        char *end = memchr(text + at, '\n', bytes - at);
        size_t length = (end != NULL ? (size_t)(end - text) : bytes) - at;
        if (length > CHANNEL_PIPE_LINE_BYTES)
            return bad_line(recording, number + 1, "it is longer than 4 MiB", "");
        if (strspn(text + at, " \t\r") < length) {
            TRY(record_line(recording, text + at, length, number + 1));
            records++;
        }
        at += length + 1;
    }
    return records > 0 ? SHOAL_OK : bad_line(recording, 1, "it has no records", "");
}

static enum shoal_status record_manifest(struct recording *recording)
{
    char *text;
    size_t bytes;
    TRY(channel_bucket_read(recording->job, &recording->input->uri, CHANNEL_MANIFEST_BYTES_MAX,
                            &text, &bytes));
    enum shoal_status status = record_lines(recording, text, bytes);
    base_free(text);
    return status;
}

/* ---- a channel ---- */

static enum shoal_status record_all(struct recording *recording)
{
    int fd = openat(recording->folder_fd, CHANNEL_PIPE_RECORDS,
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    recording->records = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (recording->records == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the list of records");
    enum shoal_status status =
        recording->input->kind == CHANNEL_AUGMENTED
            ? record_manifest(recording)
            : channel_objects_each(recording->job, recording->input, record_object, recording);
    if (fclose(recording->records) != 0 && status == SHOAL_OK)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing the list of records");
    return status;
}

/* What the feeding process is told, and the first FIFOs. */
static enum shoal_status add_pipe(struct channel_work *work, const struct channel_input *input)
{
    int hosts[CHANNEL_HOSTS_MAX], count = channel_input_hosts(input, work->job, hosts);
    json_t *names = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(names, json_string(work->job->hosts[hosts[i]].name));
    json_t *pipe =
        json_pack("{s:s, s:b, s:b, s:b, s:b, s:I, s:o}", "channel", input->name, "gzip",
                  input->is_gzip, "record_io", input->is_record_io, "sharded", input->is_sharded,
                  "shuffled", input->is_shuffled, "seed", (json_int_t)input->seed, "hosts", names);
    if (json_array_append_new(work->feed, pipe) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's pipes");
    for (int i = 0; i < count; i++)
        TRY(channel_pipe_make(work->folder_fd, work->job->hosts[hosts[i]].name, input->name, 0));
    return SHOAL_OK;
}

enum shoal_status channel_pipes_put(struct channel_work *work, const struct channel_input *input)
{
    char path[CHANNEL_PATH_BYTES];
    struct recording recording = {.job = work->job, .input = input};
    snprintf(path, sizeof(path), CHANNEL_PIPE_FOLDER "/%s", input->name);
    TRY(channel_folder_open(work->channels_fd, path, &recording.folder_fd));
    enum shoal_status status = record_all(&recording);
    if (status == SHOAL_OK)
        status = channel_bucket_link_rest(work->job);
    close(recording.folder_fd);
    return status == SHOAL_OK ? add_pipe(work, input) : status;
}
