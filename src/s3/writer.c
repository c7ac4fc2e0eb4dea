/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c: S3's codes beside the statuses of the writer that the room sql has. */
#include "s3/writer.h"

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

static bool is_failure(enum s3_code code)
{
    return code == S3_INTERNAL_ERROR || code == S3_STORAGE_FULL || code == S3_SLOW_DOWN;
}

static enum shoal_status write_apply(struct sql_write *sql, struct sql_database *database)
{
    struct s3_write *write = (struct s3_write *)sql;
    struct s3_writer *writer = write->writer;
    size_t unused = writer->unused_count;
    (void)database;
    write->code = write->apply(write, writer);
    if (write->code == S3_OK)
        return SHOAL_OK;
    writer->unused_count = unused;
    return is_failure(write->code) ? SHOAL_ERR_SYSTEM : SHOAL_ERR_ARGUMENT;
}

static void write_end(struct sql_write *sql, enum shoal_status status)
{
    struct s3_write *write = (struct s3_write *)sql;
    struct s3_writer *writer = write->writer;
    enum s3_code code = write->code;
    if (status != SHOAL_OK && code == S3_OK) /* the commit failed */
        code = writer->sql.database.is_full ? S3_STORAGE_FULL : S3_INTERNAL_ERROR;
    write->end(write, code);
    s3_store_left(writer->store);
}

/* ---- files without a row ---- */

static void begun(void *user)
{
    struct s3_writer *writer = user;
    writer->unused_before = writer->unused_count;
}

static void undone(void *user)
{
    struct s3_writer *writer = user;
    writer->unused_count = writer->unused_before;
}

static void committed(void *user)
{
    s3_contents_sweep(user);
}

enum shoal_status s3_writer_start(struct s3_writer *writer, struct s3_store *store)
{
    struct sql_writer_hooks hooks = {
        .begun = begun, .undone = undone, .committed = committed, .user = writer};
    writer->store = store;
    return sql_writer_start(&writer->sql, &hooks);
}

void s3_writer_stop(struct s3_writer *writer)
{
    sql_writer_stop(&writer->sql);
    base_free(writer->unused);
    writer->unused = NULL;
}

void s3_writer_submit(struct s3_writer *writer, struct s3_write *write)
{
    write->sql = (struct sql_write){.apply = write_apply, .end = write_end};
    write->writer = writer;
    s3_store_entered(writer->store);
    sql_writer_submit(&writer->sql, &write->sql);
}
