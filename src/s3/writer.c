/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c: transactions shared by the writes that wait. */
#include "s3/writer.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

#define BATCH_MAX 512

static bool is_failure(enum s3_code code)
{
    return code == S3_INTERNAL_ERROR || code == S3_STORAGE_FULL;
}

static void outcome_set(struct s3_write *write, enum s3_code code)
{
    base_free(write->text);
    write->text = NULL;
    write->code = code;
    if (code == S3_OK)
        return;
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    if (base_strdup(text, "the text of an error", &write->text) != SHOAL_OK)
        write->text = NULL; /* the code's own sentence does */
}

/* The write's outcome, or the failure of the database. */
static enum s3_code apply_one(struct s3_writer *writer, struct s3_write *write)
{
    struct s3_database *database = &writer->database;
    size_t unused = writer->unused_count;
    S3_TRY(s3_run(database, s3_sql(database, S3_SQL_MARK)));
    outcome_set(write, write->apply(write, writer));
    if (is_failure(write->code))
        return write->code;
    if (write->code != S3_OK) {
        writer->unused_count = unused;
        S3_TRY(s3_run(database, s3_sql(database, S3_SQL_MARK_UNDO)));
    }
    return s3_run(database, s3_sql(database, S3_SQL_MARK_END));
}

static enum s3_code apply_all(struct s3_writer *writer, struct s3_write *first)
{
    struct s3_database *database = &writer->database;
    S3_TRY(s3_run(database, s3_sql(database, S3_SQL_BEGIN)));
    for (struct s3_write *write = first; write != NULL; write = write->next)
        S3_TRY(apply_one(writer, write));
    return s3_run(database, s3_sql(database, S3_SQL_COMMIT));
}

/* One transaction for the list; the failure of the database, if it fails. */
static enum s3_code transaction(struct s3_writer *writer, struct s3_write *first)
{
    struct s3_database *database = &writer->database;
    size_t unused = writer->unused_count;
    enum s3_code code = apply_all(writer, first);
    if (code == S3_OK)
        return S3_OK;
    if (first->next == NULL)
        outcome_set(first, code);
    writer->unused_count = unused;
    if (!sqlite3_get_autocommit(database->connection))
        s3_run(database, s3_sql(database, S3_SQL_ROLLBACK));
    return code;
}

static void batch_commit(struct s3_writer *writer, struct s3_write *first)
{
    if (transaction(writer, first) == S3_OK || first->next == NULL)
        return;
    for (struct s3_write *write = first, *next; write != NULL; write = next) {
        next = write->next;
        write->next = NULL;
        transaction(writer, write);
        write->next = next;
    }
}

static void batch_end(struct s3_writer *writer, struct s3_write *first)
{
    for (struct s3_write *write = first, *next; write != NULL; write = next) {
        next = write->next;
        char *text = write->text;
        enum s3_code code = write->code;
        if (code != S3_OK)
            s3_error(code, text != NULL ? "%s" : NULL, text);
        write->end(write, code);
        base_free(text);
        s3_store_left(writer->store);
    }
}

/* Waits for writes; up to BATCH_MAX of them, NULL at the end. */
static struct s3_write *batch_take(struct s3_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->first == NULL && !writer->stops)
        pthread_cond_wait(&writer->arrived, &writer->lock);
    struct s3_write *first = writer->first, **last = &writer->first;
    for (int count = 0; *last != NULL && count < BATCH_MAX; count++)
        last = &(*last)->next;
    if (last != &writer->first) {
        writer->first = *last;
        *last = NULL;
        if (writer->first == NULL)
            writer->last = &writer->first;
    }
    pthread_mutex_unlock(&writer->lock);
    return first;
}

static void *writer_main(void *user)
{
    struct s3_writer *writer = user;
    struct s3_write *first;
    while ((first = batch_take(writer)) != NULL) {
        batch_commit(writer, first);
        s3_contents_sweep(writer);
        batch_end(writer, first);
    }
    return NULL;
}

enum shoal_status s3_writer_start(struct s3_writer *writer, struct s3_store *store)
{
    writer->store = store;
    writer->last = &writer->first;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->arrived, NULL);
    int status = pthread_create(&writer->thread, NULL, writer_main, writer);
    if (status != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, status, "no thread for the index of objects");
    writer->is_running = true;
    return SHOAL_OK;
}

void s3_writer_stop(struct s3_writer *writer)
{
    if (writer->is_running) {
        pthread_mutex_lock(&writer->lock);
        writer->stops = true;
        pthread_cond_signal(&writer->arrived);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
        writer->is_running = false;
    }
    base_free(writer->unused);
    writer->unused = NULL;
    s3_database_close(&writer->database);
}

void s3_writer_submit(struct s3_writer *writer, struct s3_write *write)
{
    write->next = NULL;
    write->text = NULL;
    s3_store_entered(writer->store);
    pthread_mutex_lock(&writer->lock);
    *writer->last = write;
    writer->last = &write->next;
    pthread_cond_signal(&writer->arrived);
    pthread_mutex_unlock(&writer->lock);
}
