/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c: transactions shared by the writes that wait. */
#include "sql/writer.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

#define BATCH_MAX    512
#define FAILURE_FROM 200 /* statuses from here on are not the request's fault */

static void outcome_set(struct sql_write *write, enum shoal_status status)
{
    base_free(write->text);
    write->text = NULL;
    write->status = status;
    if (status == SHOAL_OK)
        return;
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    if (base_strdup(text, "the text of an error", &write->text) != SHOAL_OK)
        write->text = NULL; /* the status's own sentence does */
}

static void hook(const struct sql_writer *writer, void (*function)(void *user))
{
    if (function != NULL)
        function(writer->hooks.user);
}

/* The failure of the database, if it fails; a refusal is the write's own. */
static enum shoal_status apply_one(struct sql_writer *writer, struct sql_write *write)
{
    struct sql_database *database = &writer->database;
    TRY(sql_transact(database, SQL_MARK));
    outcome_set(write, write->apply(write, database));
    if ((int)write->status >= FAILURE_FROM)
        return write->status;
    if (write->status != SHOAL_OK)
        TRY(sql_transact(database, SQL_MARK_UNDO));
    return sql_transact(database, SQL_MARK_END);
}

static enum shoal_status apply_all(struct sql_writer *writer, struct sql_write *first)
{
    struct sql_database *database = &writer->database;
    TRY(sql_transact(database, SQL_BEGIN));
    for (struct sql_write *write = first; write != NULL; write = write->next)
        TRY(apply_one(writer, write));
    return sql_transact(database, SQL_COMMIT);
}

/* One transaction for the list; the failure of the database, if it fails. */
static enum shoal_status transaction(struct sql_writer *writer, struct sql_write *first)
{
    hook(writer, writer->hooks.begun);
    enum shoal_status status = apply_all(writer, first);
    if (status == SHOAL_OK)
        return SHOAL_OK;
    if (first->next == NULL)
        outcome_set(first, status);
    hook(writer, writer->hooks.undone);
    if (!sqlite3_get_autocommit(writer->database.connection))
        sql_transact(&writer->database, SQL_ROLLBACK);
    return status;
}

static void batch_commit(struct sql_writer *writer, struct sql_write *first)
{
    if (transaction(writer, first) == SHOAL_OK || first->next == NULL)
        return;
    for (struct sql_write *write = first, *next; write != NULL; write = next) {
        next = write->next;
        write->next = NULL;
        transaction(writer, write);
        write->next = next;
    }
}

static void batch_end(struct sql_write *first)
{
    for (struct sql_write *write = first, *next; write != NULL; write = next) {
        next = write->next;
        char *text = write->text;
        enum shoal_status status = write->status;
        if (status != SHOAL_OK)
            base_error(status, "%s", text != NULL ? text : "no memory for the text of an error");
        write->end(write, status);
        base_free(text);
    }
}

/* Waits for writes; up to BATCH_MAX of them, NULL at the end. */
static struct sql_write *batch_take(struct sql_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->first == NULL && !writer->stops)
        pthread_cond_wait(&writer->arrived, &writer->lock);
    struct sql_write *first = writer->first, **last = &writer->first;
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
    struct sql_writer *writer = user;
    struct sql_write *first;
    while ((first = batch_take(writer)) != NULL) {
        batch_commit(writer, first);
        hook(writer, writer->hooks.committed);
        batch_end(first);
    }
    return NULL;
}

enum shoal_status sql_writer_start(struct sql_writer *writer, const struct sql_writer_hooks *hooks)
{
    writer->hooks = hooks != NULL ? *hooks : (struct sql_writer_hooks){0};
    writer->last = &writer->first;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->arrived, NULL);
    int status = pthread_create(&writer->thread, NULL, writer_main, writer);
    if (status != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, status, "no thread that writes %s",
                                writer->database.schema->what);
    writer->is_running = true;
    return SHOAL_OK;
}

void sql_writer_stop(struct sql_writer *writer)
{
    if (writer->is_running) {
        pthread_mutex_lock(&writer->lock);
        writer->stops = true;
        pthread_cond_signal(&writer->arrived);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
        writer->is_running = false;
    }
    sql_database_close(&writer->database);
}

void sql_writer_submit(struct sql_writer *writer, struct sql_write *write)
{
    write->next = NULL;
    write->text = NULL;
    pthread_mutex_lock(&writer->lock);
    *writer->last = write;
    writer->last = &write->next;
    pthread_cond_signal(&writer->arrived);
    pthread_mutex_unlock(&writer->lock);
}

/* ------------------------------------------------------------------------------------- blocking */

/* A write that stands for another, whose owner waits. */
struct waiting {
    struct sql_write write;
    struct sql_write *of;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    enum shoal_status status;
    char text[BASE_ERROR_TEXT_BYTES];
};

static enum shoal_status waiting_apply(struct sql_write *write, struct sql_database *database)
{
    struct waiting *waiting = (struct waiting *)write;
    return waiting->of->apply(waiting->of, database);
}

static void waiting_end(struct sql_write *write, enum shoal_status status)
{
    struct waiting *waiting = (struct waiting *)write;
    pthread_mutex_lock(&waiting->lock);
    waiting->status = status;
    waiting->is_done = true;
    snprintf(waiting->text, sizeof(waiting->text), "%s", base_error_text());
    pthread_cond_signal(&waiting->changed);
    pthread_mutex_unlock(&waiting->lock);
}

enum shoal_status sql_writer_run(struct sql_writer *writer, struct sql_write *write)
{
    struct waiting waiting = {.write = {.apply = waiting_apply, .end = waiting_end}, .of = write};
    pthread_mutex_init(&waiting.lock, NULL);
    pthread_cond_init(&waiting.changed, NULL);
    sql_writer_submit(writer, &waiting.write);
    pthread_mutex_lock(&waiting.lock);
    while (!waiting.is_done)
        pthread_cond_wait(&waiting.changed, &waiting.lock);
    pthread_mutex_unlock(&waiting.lock);
    pthread_cond_destroy(&waiting.changed);
    pthread_mutex_destroy(&waiting.lock);
    if (waiting.status == SHOAL_OK)
        return SHOAL_OK;
    return base_error(waiting.status, "%s", waiting.text);
}
