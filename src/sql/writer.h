/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h: the thread that owns all writing to a database.
 *
 * Writes wait in a queue. The thread takes all that are there, applies them in one transaction, and
 * ends each of them when it is committed, so a sync is shared by all that came during the one
 * before. Each sees what those before it did. A write that is refused (a condition does not hold)
 * has changed nothing and does not hinder the others; where the database itself fails, the
 * transaction is undone and each write gets one of its own, so that none fails for another.
 */
#ifndef SHOAL_SQL_WRITER_H
#define SHOAL_SQL_WRITER_H

#include <pthread.h>
#include <stdbool.h>

#include "sql/database.h"

/* Embedded first in what a write needs. */
struct sql_write {
    /* Set by whoever submits. apply runs inside a transaction, perhaps twice, and changes only the
     * database; what it changed is undone unless it returns SHOAL_OK. A status below 200 refuses
     * this write, others say that the database failed. */
    enum shoal_status (*apply)(struct sql_write *write, struct sql_database *database);
    /* Once, afterwards, in the writer's thread; owns the write. The error's text is the thread's.
     * NULL with sql_writer_run. */
    void (*end)(struct sql_write *write, enum shoal_status status);
    /* The writer's. */
    struct sql_write *next;
    enum shoal_status status;
    char *text; /* of its error */
};

/* What else belongs to a transaction; each may be NULL. In the writer's thread. */
struct sql_writer_hooks {
    void (*begun)(void *user);
    void (*undone)(void *user);
    void (*committed)(void *user); /* after one or more of them, before the writes end */
    void *user;
};

struct sql_writer {
    struct sql_database database;
    struct sql_writer_hooks hooks;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct sql_write *first, **last;
    bool stops, is_running;
};

/* The database is open already. */
enum shoal_status sql_writer_start(struct sql_writer *writer, const struct sql_writer_hooks *hooks);
/* Ends what was submitted, then the thread, and closes the database. */
void sql_writer_stop(struct sql_writer *writer);
/* From any thread, also from a write's end. */
void sql_writer_submit(struct sql_writer *writer, struct sql_write *write);
/* The same, and waits for its end; its outcome, with the text in this thread. Not from the writer's
 * own thread. */
enum shoal_status sql_writer_run(struct sql_writer *writer, struct sql_write *write);

#endif
