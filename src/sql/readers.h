/* SPDX-License-Identifier: Apache-2.0 */
/* readers.h: connections for reading, which threads take and give back. */
#ifndef SHOAL_SQL_READERS_H
#define SHOAL_SQL_READERS_H

#include <pthread.h>

#include "sql/database.h"

#define SQL_READERS_MAX 16

struct sql_readers {
    const struct sql_schema *schema;
    char *path;
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct sql_database *free; /* a list */
    int count;                 /* of all */
};

/* The file is there when the first is taken. */
enum shoal_status sql_readers_init(struct sql_readers *readers, const char *path,
                                   const struct sql_schema *schema);
/* When all were given back. Safe on a zeroed one. */
void sql_readers_release(struct sql_readers *readers);
/* Waits while all are taken: it must be given back soon. */
enum shoal_status sql_reader_take(struct sql_readers *readers, struct sql_database **out);
void sql_reader_give(struct sql_readers *readers, struct sql_database *reader);

#endif
