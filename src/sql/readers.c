/* SPDX-License-Identifier: Apache-2.0 */
/* readers.c: connections are opened when one is wanted and none is free, up to a limit. */
#include "sql/readers.h"

#include "base/memory.h"
#include "base/status.h"

enum shoal_status sql_readers_init(struct sql_readers *readers, const char *path,
                                   const struct sql_schema *schema)
{
    TRY(base_strdup(path, "a path", &readers->path));
    readers->schema = schema;
    pthread_mutex_init(&readers->lock, NULL);
    pthread_cond_init(&readers->given, NULL);
    return SHOAL_OK;
}

void sql_readers_release(struct sql_readers *readers)
{
    while (readers->free != NULL) {
        struct sql_database *reader = readers->free;
        readers->free = reader->next;
        sql_database_close(reader);
        base_free(reader);
    }
    base_free(readers->path);
    readers->path = NULL;
}

static enum shoal_status reader_make(const struct sql_readers *readers, struct sql_database **out)
{
    struct sql_database *reader;
    TRY(BASE_NEW(&reader, "a connection to a database"));
    enum shoal_status status = sql_database_open(readers->path, readers->schema, false, reader);
    if (status != SHOAL_OK) {
        base_free(reader);
        return status;
    }
    *out = reader;
    return SHOAL_OK;
}

static void not_made(struct sql_readers *readers)
{
    pthread_mutex_lock(&readers->lock);
    readers->count--;
    pthread_cond_signal(&readers->given);
    pthread_mutex_unlock(&readers->lock);
}

enum shoal_status sql_reader_take(struct sql_readers *readers, struct sql_database **out)
{
    pthread_mutex_lock(&readers->lock);
    while (readers->free == NULL && readers->count == SQL_READERS_MAX)
        pthread_cond_wait(&readers->given, &readers->lock);
    struct sql_database *reader = readers->free;
    if (reader != NULL)
        readers->free = reader->next;
    else
        readers->count++;
    pthread_mutex_unlock(&readers->lock);
    if (reader == NULL) {
        enum shoal_status status = reader_make(readers, &reader);
        if (status != SHOAL_OK) {
            not_made(readers);
            return status;
        }
    }
    *out = reader;
    return SHOAL_OK;
}

void sql_reader_give(struct sql_readers *readers, struct sql_database *reader)
{
    pthread_mutex_lock(&readers->lock);
    reader->next = readers->free;
    readers->free = reader;
    pthread_cond_signal(&readers->given);
    pthread_mutex_unlock(&readers->lock);
}
