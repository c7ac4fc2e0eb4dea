/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql.h: the tables of service.db, and every statement on them but those of searches.
 *
 * job         what lists, filters and the queue look at: small rows. `phase` is the step at which a
 *             killed service takes the job over (status.h); `attempt` counts restarts. The members
 *             behind `keep_s` are its warm pool's (pool.h): `pool` is WarmPoolStatus, `pool_cache`
 *             the job whose folder of files its instances have in common with those before,
 *             `pool_since_ms` when the first of them began.
 * request     what the job was created with, as JSON, and the metrics it ended with
 * transition  a job's secondary statuses, in order
 * property    each scalar of a request (and metric) by its path, for searches: rows are in the
 * order of paths, so that a filter is one walk. `item` numbers the elements of the outermost list.
 * tag         of any resource, by ARN
 *
 * Names of jobs differ in more than case, because their ARNs are in lower case.
 */
#ifndef SHOAL_SERVICE_SQL_H
#define SHOAL_SERVICE_SQL_H

#define SERVICE_SCHEMA_VERSION 3

#define SERVICE_SCHEMA                                                                             \
    "CREATE TABLE job(id INTEGER PRIMARY KEY AUTOINCREMENT,"                                       \
    " name TEXT NOT NULL UNIQUE COLLATE NOCASE, arn TEXT NOT NULL UNIQUE, phase INTEGER NOT NULL," \
    " attempt INTEGER NOT NULL DEFAULT 1, priority INTEGER NOT NULL DEFAULT 0,"                    \
    " accelerators INTEGER NOT NULL DEFAULT 0,"                                                    \
    " status TEXT NOT NULL, secondary TEXT NOT NULL, reason TEXT,"                                 \
    " created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL,"                                  \
    " started_ms INTEGER, ended_ms INTEGER, trained_ms INTEGER NOT NULL DEFAULT 0,"                \
    " keep_s INTEGER NOT NULL DEFAULT 0, pool TEXT, pool_until_ms INTEGER,"                        \
    " pool_retained_ms INTEGER, pool_reused_by TEXT, pool_cache INTEGER NOT NULL DEFAULT 0,"       \
    " pool_since_ms INTEGER NOT NULL DEFAULT 0) STRICT;"                                           \
    "CREATE INDEX job_by_created ON job(created_ms, id);"                                          \
    "CREATE INDEX job_by_modified ON job(modified_ms, id);"                                        \
    "CREATE INDEX job_by_status ON job(status, id);"                                               \
    "CREATE INDEX job_open ON job(id) WHERE phase < 4;"                                            \
    "CREATE TABLE request(job INTEGER PRIMARY KEY, text TEXT NOT NULL, metrics TEXT) STRICT;"      \
    "CREATE TABLE transition(job INTEGER NOT NULL, number INTEGER NOT NULL,"                       \
    " status TEXT NOT NULL, message TEXT NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER,"     \
    " PRIMARY KEY(job, number)) STRICT, WITHOUT ROWID;"                                            \
    "CREATE TABLE property(path TEXT NOT NULL, job INTEGER NOT NULL, item INTEGER NOT NULL,"       \
    " text TEXT NOT NULL, number REAL, PRIMARY KEY(path, job, item, text)) STRICT, WITHOUT ROWID;" \
    "CREATE INDEX property_of_job ON property(job);"                                               \
    "CREATE TABLE tag(arn TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"                  \
    " PRIMARY KEY(arn, key)) STRICT, WITHOUT ROWID;"                                               \
    "CREATE INDEX tag_by_key ON tag(key, arn, value);"

/* The first version had no warm pools. */
#define SERVICE_UPGRADE_1                                           \
    "ALTER TABLE job ADD COLUMN keep_s INTEGER NOT NULL DEFAULT 0;" \
    "ALTER TABLE job ADD COLUMN pool TEXT;"                         \
    "ALTER TABLE job ADD COLUMN pool_until_ms INTEGER;"             \
    "ALTER TABLE job ADD COLUMN pool_retained_ms INTEGER;"          \
    "ALTER TABLE job ADD COLUMN pool_reused_by TEXT;"               \
    "ALTER TABLE job ADD COLUMN pool_cache INTEGER NOT NULL DEFAULT 0;"
/* The second one did not know how old a pool is. */
#define SERVICE_UPGRADE_2                                                  \
    "ALTER TABLE job ADD COLUMN pool_since_ms INTEGER NOT NULL DEFAULT 0;" \
    "UPDATE job SET pool_since_ms = coalesce(started_ms, created_ms)"      \
    " WHERE phase < 4 OR pool = 'Available';"

#define SERVICE_JOB_COLUMNS                                                            \
    "id, name, arn, phase, attempt, priority, status, secondary, reason, created_ms, " \
    "modified_ms, started_ms, ended_ms, trained_ms, accelerators, keep_s, pool, "      \
    "pool_until_ms, pool_retained_ms, pool_reused_by, pool_cache, pool_since_ms"

/* Of a list of jobs: the filters, each of which holds where its value is NULL. ?1 created after,
 * ?2 created before, ?3 and ?4 the same for modified, ?5 part of the name, ?6 status, ?10 that of
 * the warm pool. */
#define SERVICE_LIST_FILTERS                                                                 \
    " WHERE (?1 IS NULL OR created_ms > ?1) AND (?2 IS NULL OR created_ms < ?2)"             \
    " AND (?3 IS NULL OR modified_ms > ?3) AND (?4 IS NULL OR modified_ms < ?4)"             \
    " AND (?5 IS NULL OR instr(lower(name), lower(?5)) > 0) AND (?6 IS NULL OR status = ?6)" \
    " AND (?10 IS NULL OR pool = ?10)"
/* From (?7, ?8) on, in the order of a column, ?9 rows. */
#define SERVICE_LIST(column, comparison, order)                                                   \
    "SELECT " SERVICE_JOB_COLUMNS " FROM job" SERVICE_LIST_FILTERS " AND (?7 IS NULL OR (" column \
    ", id) " comparison " (?7, ?8)) ORDER BY " column " " order ", id " order " LIMIT ?9"

#define SERVICE_STATEMENTS(X)                                                                     \
    X(JOB_ADD, "INSERT INTO job(name, arn, phase, priority, status, secondary, created_ms,"       \
               " modified_ms, keep_s) VALUES(?1, ?2, 0, ?3, ?4, ?5, ?6, ?6, coalesce(?7, 0))")    \
    X(JOB_FIND, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE name = ?1")                        \
    X(JOB_GET, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE id = ?1")                           \
    X(JOB_BY_ARN, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE arn = ?1")                       \
    X(JOB_OPEN, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE phase < 4 ORDER BY id")            \
    X(JOB_OPEN_COUNT, "SELECT count(*) FROM (SELECT 1 FROM job WHERE phase < 4 LIMIT ?1)")        \
    X(JOB_STATUS, "UPDATE job SET status = ?2, secondary = ?3, modified_ms = ?4 WHERE id = ?1")   \
    X(JOB_BEGIN, "UPDATE job SET phase = 1, accelerators = ?2 WHERE id = ?1")                     \
    X(JOB_PHASE, "UPDATE job SET phase = ?2 WHERE id = ?1")                                       \
    X(JOB_PRIORITY, "UPDATE job SET priority = ?2 WHERE id = ?1")                                 \
    X(JOB_STARTED, "UPDATE job SET started_ms = coalesce(started_ms, ?2) WHERE id = ?1")          \
    X(JOB_ATTEMPT, "UPDATE job SET phase = 0, attempt = attempt + 1,"                             \
                   " trained_ms = trained_ms + ?2 WHERE id = ?1")                                 \
    X(JOB_END, "UPDATE job SET phase = 4, reason = ?2, ended_ms = ?3,"                            \
               " trained_ms = trained_ms + ?4 WHERE id = ?1")                                     \
    X(JOB_MODIFIED, "UPDATE job SET modified_ms = ?2 WHERE id = ?1")                              \
    X(JOB_DELETE, "DELETE FROM job WHERE id = ?1")                                                \
    X(POOL_OPEN, "SELECT " SERVICE_JOB_COLUMNS " FROM job WHERE pool = 'Available' ORDER BY id")  \
    X(POOL_USE, "UPDATE job SET pool = 'InUse', pool_cache = ?2 WHERE id = ?1")                   \
    X(POOL_SINCE, "UPDATE job SET pool_since_ms = ?2 WHERE id = ?1")                              \
    X(POOL_KEEP, "UPDATE job SET pool = 'Available', pool_until_ms = ?2 WHERE id = ?1")           \
    X(POOL_TAKE, "UPDATE job SET pool = 'Reused', pool_reused_by = ?2,"                           \
                 " pool_retained_ms = ?3 - ended_ms, modified_ms = ?3 WHERE id = ?1")             \
    X(POOL_END, "UPDATE job SET pool = 'Terminated', pool_retained_ms = ?2 - ended_ms,"           \
                " modified_ms = ?2 WHERE id = ?1")                                                \
    X(POOL_PERIOD, "UPDATE job SET keep_s = ?2, pool = CASE WHEN pool IS NULL AND ?2 > 0"         \
                   " AND phase BETWEEN 1 AND 3 THEN 'InUse' ELSE pool END WHERE id = ?1")         \
    X(POOL_HAS_CACHE, "SELECT 1 FROM job WHERE pool_cache = ?1"                                   \
                      " AND pool IN ('InUse', 'Available') LIMIT 1")                              \
    X(REQUEST_ADD, "INSERT INTO request(job, text) VALUES(?1, ?2)")                               \
    X(REQUEST_GET, "SELECT text, metrics FROM request WHERE job = ?1")                            \
    X(REQUEST_SET, "UPDATE request SET text = ?2 WHERE job = ?1")                                 \
    X(REQUEST_METRICS, "UPDATE request SET metrics = ?2 WHERE job = ?1")                          \
    X(REQUEST_DELETE, "DELETE FROM request WHERE job = ?1")                                       \
    X(TRANSITION_END, "UPDATE transition SET end_ms = ?2 WHERE job = ?1 AND end_ms IS NULL")      \
    X(TRANSITION_ADD, "INSERT INTO transition(job, number, status, message, start_ms, end_ms)"    \
                      " VALUES(?1, (SELECT coalesce(max(number), 0) + 1 FROM transition"          \
                      " WHERE job = ?1), ?2, ?3, ?4, ?5)")                                        \
    X(TRANSITION_MESSAGE, "UPDATE transition SET message = ?2 WHERE job = ?1 AND end_ms IS NULL") \
    X(TRANSITION_LIST, "SELECT status, message, start_ms, end_ms FROM transition"                 \
                       " WHERE job = ?1 ORDER BY number")                                         \
    X(TRANSITION_DELETE, "DELETE FROM transition WHERE job = ?1")                                 \
    X(PROPERTY_ADD, "INSERT OR REPLACE INTO property(path, job, item, text, number)"              \
                    " VALUES(?1, ?2, ?3, ?4, ?5)")                                                \
    X(PROPERTY_DELETE, "DELETE FROM property WHERE job = ?1")                                     \
    X(TAG_PUT, "INSERT OR REPLACE INTO tag(arn, key, value) VALUES(?1, ?2, ?3)")                  \
    X(TAG_LIST, "SELECT key, value FROM tag WHERE arn = ?1 AND key > ?2 ORDER BY key LIMIT ?3")   \
    X(TAG_COUNT, "SELECT count(*) FROM tag WHERE arn = ?1")                                       \
    X(TAG_DELETE, "DELETE FROM tag WHERE arn = ?1 AND key = ?2")                                  \
    X(TAG_DELETE_ALL, "DELETE FROM tag WHERE arn = ?1")                                           \
    X(LIST_NAME_UP, SERVICE_LIST("name", ">", "ASC"))                                             \
    X(LIST_NAME_DOWN, SERVICE_LIST("name", "<", "DESC"))                                          \
    X(LIST_CREATED_UP, SERVICE_LIST("created_ms", ">", "ASC"))                                    \
    X(LIST_CREATED_DOWN, SERVICE_LIST("created_ms", "<", "DESC"))                                 \
    X(LIST_STATUS_UP, SERVICE_LIST("status", ">", "ASC"))                                         \
    X(LIST_STATUS_DOWN, SERVICE_LIST("status", "<", "DESC"))

#define SERVICE_SQL_CONSTANT(name, text) SERVICE_SQL_##name,
enum service_sql { SERVICE_STATEMENTS(SERVICE_SQL_CONSTANT) SERVICE_SQL_COUNT };
#undef SERVICE_SQL_CONSTANT

#endif
