/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed.c: fills the FIFOs of Pipe mode, from files that channel_prepare has linked: it needs no
 * bucket, so it goes on when the service ends.
 *
 * A thread for each channel of each host, for that is how readers wait. An epoch's FIFO is opened,
 * which waits for a reader; then the next epoch's FIFO is made, so that the reader always finds it;
 * then the records are written, and the FIFO goes. A reader that closes early ends its epoch. All
 * of it lies in folders that the job may change: only a FIFO is ever written to.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/inflate.h"
#include "channel/objects.h"
#include "channel/pipe.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define STACK_BYTES  ((size_t)512 << 10)
#define FIFO_BYTES   (1 << 20)
#define COPY_BYTES   ((size_t)64 << 10)
#define SPLICE_BYTES ((size_t)1 << 20)

struct source;

struct feed {
    int folder_fd; /* the job's */
    json_t *list;  /* of feed.json */
    struct source *sources;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_failed;
    enum shoal_status status;
    char text[BASE_ERROR_TEXT_BYTES];
};

/* A channel. */
struct source {
    struct feed *feed;
    struct stream *streams;
    struct channel_pipe pipe;
    int folder_fd;
    const char *records; /* mapped */
    size_t record_bytes;
    size_t *starts; /* of each record, and the end behind */
    uint32_t count;
};

/* A channel of a host. */
struct stream {
    struct source *source;
    const char *host;
    uint32_t rank;
    int fd; /* the FIFO */
};

/* ---- bytes ---- */

/* SHOAL_ERR_PEER_LOST: the reader has closed. */
static enum shoal_status fifo_failed(void)
{
    if (errno == EPIPE)
        return base_error(SHOAL_ERR_PEER_LOST, "the reader has closed the pipe");
    return base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing to a pipe of the job");
}

static enum shoal_status put_bytes(void *user, const void *data, size_t bytes)
{
    struct stream *stream = user;
    for (const char *at = data; bytes > 0;) {
        ssize_t written = write(stream->fd, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fifo_failed();
        at += written;
        bytes -= (size_t)written;
    }
    return SHOAL_OK;
}

static enum shoal_status put_by_hand(struct stream *stream, int fd, int64_t at, int64_t end)
{
    char buffer[COPY_BYTES];
    while (at < end) {
        ssize_t got = pread(fd, buffer, sizeof(buffer), at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, got < 0 ? errno : EIO, "reading an object");
        TRY(put_bytes(stream, buffer, (size_t)got));
        at += got;
    }
    return SHOAL_OK;
}

/* The file's pages go into the pipe as they are. */
static enum shoal_status put_file(struct stream *stream, int fd, int64_t bytes)
{
    loff_t at = 0;
    while (at < bytes) {
        ssize_t moved = splice(fd, &at, stream->fd, NULL, SPLICE_BYTES, SPLICE_F_MORE);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved < 0 && errno == EPIPE)
            return fifo_failed();
        if (moved <= 0)
            return put_by_hand(stream, fd, at, bytes);
    }
    return SHOAL_OK;
}

static enum shoal_status count_bytes(void *user, const void *data, size_t bytes)
{
    (void)data;
    *(int64_t *)user += (int64_t)bytes;
    return SHOAL_OK;
}

/* ---- records ---- */

static enum shoal_status put_head(struct stream *stream, int64_t bytes, int *zeros)
{
    unsigned char head[CHANNEL_RECORD_HEAD_BYTES];
    *zeros = 0;
    if (!stream->source->pipe.is_record_io)
        return SHOAL_OK;
    if (bytes > CHANNEL_RECORD_BYTES_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "a record of the channel '%s' has %lld bytes; RecordIO's limit is %lld",
                          stream->source->pipe.channel, (long long)bytes,
                          (long long)CHANNEL_RECORD_BYTES_MAX);
    *zeros = channel_record_head((uint32_t)bytes, head);
    return put_bytes(stream, head, sizeof(head));
}

static enum shoal_status put_tail(struct stream *stream, int zeros)
{
    return put_bytes(stream, "\0\0\0", (size_t)zeros);
}

static enum shoal_status put_text(struct stream *stream, const char *text, size_t bytes)
{
    int zeros;
    TRY(put_head(stream, (int64_t)bytes, &zeros));
    TRY(put_bytes(stream, text, bytes));
    return put_tail(stream, zeros);
}

/* What is to be wrapped must be counted first, so it is unpacked twice. */
static enum shoal_status put_packed(struct stream *stream, int fd)
{
    int64_t bytes = 0;
    int zeros = 0;
    if (stream->source->pipe.is_record_io) {
        TRY(channel_inflate(fd, count_bytes, &bytes));
        TRY(put_head(stream, bytes, &zeros));
        if (lseek(fd, 0, SEEK_SET) != 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading an object");
    }
    TRY(channel_inflate(fd, put_bytes, stream));
    return put_tail(stream, zeros);
}

static enum shoal_status put_plain(struct stream *stream, int fd, int64_t bytes)
{
    int zeros;
    TRY(put_head(stream, bytes, &zeros));
    TRY(put_file(stream, fd, bytes));
    return put_tail(stream, zeros);
}

static enum shoal_status put_object(struct stream *stream, int64_t number)
{
    char path[CHANNEL_PIPE_FILE_BYTES];
    struct stat about;
    channel_pipe_file(number, path);
    int fd = openat(stream->source->folder_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) {
        int error_number = errno;
        if (fd >= 0)
            close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "opening object %lld of %s",
                                (long long)number, stream->source->pipe.channel);
    }
    enum shoal_status status = stream->source->pipe.is_gzip ? put_packed(stream, fd)
                                                            : put_plain(stream, fd, about.st_size);
    close(fd);
    return status;
}

static enum shoal_status put_record(struct stream *stream, uint32_t index)
{
    const struct source *source = stream->source;
    size_t start = source->starts[index], i;
    json_t *value,
        *record = json_loadb(source->records + start, source->starts[index + 1] - start, 0, NULL);
    enum shoal_status status = SHOAL_OK;
    if (!json_is_array(record))
        status = base_error(SHOAL_ERR_SYSTEM, "record %u of %s can't be read", index,
                            source->pipe.channel);
    json_array_foreach(record, i, value)
    {
        if (status == SHOAL_OK && json_is_integer(value))
            status = put_object(stream, json_integer_value(value));
        else if (status == SHOAL_OK)
            status = put_text(stream, json_string_value(value), json_string_length(value));
    }
    json_decref(record);
    return status;
}

/* ---- epochs ---- */

static enum shoal_status put_records(struct stream *stream, uint64_t epoch)
{
    const struct source *source = stream->source;
    const struct channel_pipe *pipe = &source->pipe;
    uint32_t *order = NULL;
    uint64_t first = 0, step = 1;
    if (pipe->is_sharded) {
        first = stream->rank;
        step = json_array_size(pipe->hosts);
    }
    if (pipe->is_shuffled)
        TRY(channel_order_create(source->count, pipe->seed, epoch, &order));
    enum shoal_status status = SHOAL_OK;
    for (uint64_t i = first; status == SHOAL_OK && i < source->count; i += step)
        status = put_record(stream, order != NULL ? order[i] : (uint32_t)i);
    base_free(order);
    return status;
}

/* Waits for a reader. */
static enum shoal_status open_fifo(struct stream *stream, uint64_t epoch)
{
    char path[CHANNEL_PATH_BYTES];
    channel_pipe_path(stream->host, stream->source->pipe.channel, epoch, path, sizeof(path));
    stream->fd = channel_open_kind(stream->source->feed->folder_fd, path, S_IFIFO, O_WRONLY);
    if (stream->fd < 0)
        return base_error_errno(SHOAL_ERR_STATE, errno, "the job has changed its pipe %.300s",
                                path);
    fcntl(stream->fd, F_SETPIPE_SZ, FIFO_BYTES); /* where the system allows it */
    return SHOAL_OK;
}

static enum shoal_status feed_epoch(struct stream *stream, uint64_t epoch)
{
    const char *channel = stream->source->pipe.channel;
    int folder_fd = stream->source->feed->folder_fd;
    TRY(open_fifo(stream, epoch));
    enum shoal_status status = channel_pipe_make(folder_fd, stream->host, channel, epoch + 1);
    if (status == SHOAL_OK)
        status = put_records(stream, epoch);
    close(stream->fd);
    if (status != SHOAL_OK && status != SHOAL_ERR_PEER_LOST)
        return status;
    return channel_pipe_remove(folder_fd, stream->host, channel, epoch);
}

static void *feed_stream(void *user)
{
    struct stream *stream = user;
    struct feed *feed = stream->source->feed;
    enum shoal_status status = SHOAL_OK;
    for (uint64_t epoch = 0; status == SHOAL_OK; epoch++)
        status = feed_epoch(stream, epoch);
    pthread_mutex_lock(&feed->lock);
    if (!feed->has_failed) {
        feed->has_failed = true;
        feed->status = status;
        snprintf(feed->text, sizeof(feed->text), "%s", base_error_text());
        pthread_cond_signal(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- the start: what it takes lives as long as the process ---- */

static enum shoal_status index_records(struct source *source)
{
    size_t room = 0;
    for (size_t i = 0; i < source->record_bytes; i++)
        room += source->records[i] == '\n';
    if (room >= UINT32_MAX)
        return base_error(SHOAL_ERR_LIMIT, "the channel '%s' has too many records",
                          source->pipe.channel);
    TRY(BASE_NEW_ARRAY(&source->starts, room + 1, "where records start"));
    source->count = (uint32_t)room;
    for (size_t i = 0, number = 1; number <= room; i++) {
        if (source->records[i] == '\n')
            source->starts[number++] = i + 1;
    }
    return SHOAL_OK;
}

static enum shoal_status open_records(struct source *source)
{
    char path[CHANNEL_PATH_BYTES];
    struct stat about;
    snprintf(path, sizeof(path), CHANNEL_FOLDER "/" CHANNEL_PIPE_FOLDER "/%s",
             source->pipe.channel);
    source->folder_fd = openat(source->feed->folder_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = source->folder_fd >= 0
                 ? openat(source->folder_fd, CHANNEL_PIPE_RECORDS, O_RDONLY | O_CLOEXEC)
                 : -1;
    if (fd < 0 || fstat(fd, &about) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s/" CHANNEL_PIPE_RECORDS, path);
    void *mapped = mmap(NULL, (size_t)about.st_size + 1, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "reading %s/" CHANNEL_PIPE_RECORDS, path);
    source->records = mapped;
    source->record_bytes = (size_t)about.st_size;
    return index_records(source);
}

static enum shoal_status read_source(const json_t *object, struct source *source)
{
    struct channel_pipe *pipe = &source->pipe;
    int is_gzip, is_record_io, is_sharded, is_shuffled;
    json_int_t seed;
    json_t *hosts;
    if (json_unpack((json_t *)object, "{s:s, s:b, s:b, s:b, s:b, s:I, s:o}", "channel",
                    &pipe->channel, "gzip", &is_gzip, "record_io", &is_record_io, "sharded",
                    &is_sharded, "shuffled", &is_shuffled, "seed", &seed, "hosts", &hosts) != 0)
        return base_error(SHOAL_ERR_SYSTEM, CHANNEL_FEED_FILE " has a pipe that can't be read");
    pipe->is_gzip = is_gzip != 0;
    pipe->is_record_io = is_record_io != 0;
    pipe->is_sharded = is_sharded != 0;
    pipe->is_shuffled = is_shuffled != 0;
    pipe->seed = (uint64_t)seed;
    pipe->hosts = hosts;
    return open_records(source);
}

static enum shoal_status start_streams(struct source *source)
{
    pthread_attr_t attributes;
    pthread_t thread;
    size_t count = json_array_size(source->pipe.hosts);
    TRY(BASE_NEW_ARRAY(&source->streams, count + 1, "a channel's pipes"));
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error_number = 0;
    for (size_t i = 0; error_number == 0 && i < count; i++) {
        source->streams[i] =
            (struct stream){.source = source,
                            .host = json_string_value(json_array_get(source->pipe.hosts, i)),
                            .rank = (uint32_t)i};
        error_number = pthread_create(&thread, &attributes, feed_stream, &source->streams[i]);
    }
    pthread_attr_destroy(&attributes);
    if (error_number != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "starting a thread for a pipe");
    return SHOAL_OK;
}

static enum shoal_status start(struct feed *feed)
{
    size_t count = json_array_size(feed->list);
    TRY(BASE_NEW_ARRAY(&feed->sources, count + 1, "a job's pipes"));
    for (size_t i = 0; i < count; i++) {
        feed->sources[i].feed = feed;
        TRY(read_source(json_array_get(feed->list, i), &feed->sources[i]));
    }
    for (size_t i = 0; i < count; i++)
        TRY(start_streams(&feed->sources[i]));
    return SHOAL_OK;
}

static enum shoal_status feed_all(struct feed *feed, const char *folder)
{
    json_error_t error;
    char path[CHANNEL_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" CHANNEL_FOLDER "/" CHANNEL_FEED_FILE, folder);
    feed->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    feed->list = json_load_file(path, 0, &error);
    if (feed->folder_fd < 0 || feed->list == NULL)
        return base_error(SHOAL_ERR_SYSTEM, "%s: %s", path, error.text);
    TRY(start(feed));
    pthread_mutex_lock(&feed->lock);
    while (!feed->has_failed)
        pthread_cond_wait(&feed->changed, &feed->lock);
    pthread_mutex_unlock(&feed->lock);
    return base_error(feed->status, "%s", feed->text);
}

enum shoal_status channel_feed_run(const char *folder)
{
    static struct feed feed = {.lock = PTHREAD_MUTEX_INITIALIZER,
                               .changed = PTHREAD_COND_INITIALIZER};
    signal(SIGPIPE, SIG_IGN);
    return channel_failure(feed_all(&feed, folder), "Data download failed");
}
