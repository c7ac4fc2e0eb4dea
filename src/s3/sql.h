/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sql.h: every statement of the index, in one table, beside the tables they work on.
 *
 * bucket    name and age
 * content   a file of contents/ by its number, and how many rows refer to it: objects, parts, and
 *           an upload to the file its parts are put in. With none the file goes, then the row.
 * object    by bucket and key, in the order of lists. Wide, and without a row number, so that a
 * page of a list is one walk over neighbouring pages of the file. upload    a multipart upload
 * under way. content and stride: place.h. part      where its bytes are: in which file, from which
 * offset on setting   `settled`: the numbers of files below it are known to have rows or no file
 */
#ifndef SHOAL_S3_SQL_H
#define SHOAL_S3_SQL_H

#define S3_SCHEMA_VERSION 1

#define S3_SCHEMA                                                                                \
    "CREATE TABLE bucket(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"       \
    " created_ms INTEGER NOT NULL) STRICT;"                                                      \
    "CREATE TABLE content(id INTEGER PRIMARY KEY, refs INTEGER NOT NULL) STRICT;"                \
    "CREATE INDEX content_unused ON content(id) WHERE refs = 0;"                                 \
    "CREATE TABLE object(bucket INTEGER NOT NULL, key BLOB NOT NULL, content INTEGER NOT NULL,"  \
    " bytes INTEGER NOT NULL, modified_ms INTEGER NOT NULL, etag TEXT NOT NULL,"                 \
    " algorithm INTEGER NOT NULL, checksum TEXT, part_count INTEGER NOT NULL, parts TEXT,"       \
    " headers TEXT, tags TEXT, PRIMARY KEY(bucket, key)) STRICT, WITHOUT ROWID;"                 \
    "CREATE TABLE upload(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"       \
    " bucket INTEGER NOT NULL, key BLOB NOT NULL, created_ms INTEGER NOT NULL,"                  \
    " algorithm INTEGER NOT NULL, is_composite INTEGER NOT NULL, headers TEXT, tags TEXT,"       \
    " content INTEGER NOT NULL DEFAULT 0, stride INTEGER NOT NULL DEFAULT 0) STRICT;"            \
    "CREATE INDEX upload_by_key ON upload(bucket, key, name);"                                   \
    "CREATE TABLE part(upload INTEGER NOT NULL, number INTEGER NOT NULL,"                        \
    " content INTEGER NOT NULL, start INTEGER NOT NULL, bytes INTEGER NOT NULL,"                 \
    " modified_ms INTEGER NOT NULL, md5 BLOB NOT NULL, checksum BLOB,"                           \
    " PRIMARY KEY(upload, number)) STRICT, WITHOUT ROWID;"                                       \
    "CREATE TABLE setting(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;" \
    "INSERT INTO setting VALUES('settled', 1);"

#define S3_OBJECT_COLUMNS \
    "content, bytes, modified_ms, etag, algorithm, checksum, part_count, parts, headers, tags"
#define S3_UPLOAD_COLUMNS "id, name, key, created_ms, algorithm, is_composite, headers"

#define S3_STATEMENTS(X)                                                                          \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                   \
    X(COMMIT, "COMMIT")                                                                           \
    X(ROLLBACK, "ROLLBACK")                                                                       \
    X(MARK, "SAVEPOINT one")                                                                      \
    X(MARK_UNDO, "ROLLBACK TO one")                                                               \
    X(MARK_END, "RELEASE one")                                                                    \
    X(SETTLED_GET, "SELECT value FROM setting WHERE name = 'settled'")                            \
    X(SETTLED_SET, "UPDATE setting SET value = ?1 WHERE name = 'settled'")                        \
    X(BUCKET_ADD, "INSERT INTO bucket(name, created_ms) VALUES(?1, ?2)")                          \
    X(BUCKET_FIND, "SELECT id, created_ms FROM bucket WHERE name = ?1")                           \
    X(BUCKET_LIST, "SELECT name, created_ms FROM bucket ORDER BY name LIMIT 10000")               \
    X(BUCKET_COUNT, "SELECT count(*) FROM bucket")                                                \
    X(BUCKET_DELETE, "DELETE FROM bucket WHERE id = ?1")                                          \
    X(BUCKET_USED, "SELECT 1 FROM object WHERE bucket = ?1 LIMIT 1")                              \
    X(CONTENT_ADD, "INSERT INTO content(id, refs) VALUES(?1, 1)")                                 \
    X(CONTENT_HOLD,                                                                               \
      "UPDATE content SET refs = refs + 1 WHERE id = ?1 AND refs > 0 RETURNING refs")             \
    X(CONTENT_DROP, "UPDATE content SET refs = refs - 1 WHERE id = ?1 RETURNING refs")            \
    X(CONTENT_FIND, "SELECT refs FROM content WHERE id = ?1")                                     \
    X(CONTENT_LAST, "SELECT coalesce(max(id), 0) FROM content")                                   \
    X(CONTENT_UNUSED, "SELECT id FROM content WHERE refs = 0")                                    \
    X(CONTENT_REMOVE, "DELETE FROM content WHERE id = ?1 AND refs = 0")                           \
    X(OBJECT_GET, "SELECT " S3_OBJECT_COLUMNS " FROM object WHERE bucket = ?1 AND key = ?2")      \
    X(OBJECT_PUT, "INSERT OR REPLACE INTO object(bucket, key, " S3_OBJECT_COLUMNS ")"             \
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")                   \
    X(OBJECT_DELETE, "DELETE FROM object WHERE bucket = ?1 AND key = ?2")                         \
    X(OBJECT_TAG, "UPDATE object SET tags = ?3 WHERE bucket = ?1 AND key = ?2")                   \
    X(OBJECT_LIST, "SELECT key, bytes, modified_ms, etag, algorithm, checksum, headers"           \
                   " FROM object WHERE bucket = ?1 AND key >= ?2 ORDER BY key")                   \
    X(UPLOAD_ADD, "INSERT INTO upload(name, bucket, key, created_ms, algorithm, is_composite,"    \
                  " headers, tags) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                       \
    X(UPLOAD_FIND, "SELECT " S3_UPLOAD_COLUMNS ", content, stride, tags FROM upload"              \
                   " WHERE name = ?1 AND bucket = ?2 AND key = ?3")                               \
    X(UPLOAD_PLACE, "UPDATE upload SET content = ?2, stride = ?3 WHERE id = ?1")                  \
    X(UPLOAD_DELETE, "DELETE FROM upload WHERE id = ?1")                                          \
    X(UPLOAD_OF_BUCKET, "SELECT id, content FROM upload WHERE bucket = ?1 LIMIT 1")               \
    X(UPLOAD_LIST, "SELECT " S3_UPLOAD_COLUMNS " FROM upload WHERE bucket = ?1"                   \
                   " AND (key, name) > (?2, ?3) AND key >= ?4 ORDER BY key, name")                \
    X(PART_PUT, "INSERT OR REPLACE INTO part(upload, number, content, start, bytes, modified_ms," \
                " md5, checksum) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                         \
    X(PART_GET, "SELECT content, start, bytes, md5, checksum FROM part"                           \
                " WHERE upload = ?1 AND number = ?2")                                             \
    X(PART_LIST, "SELECT number, bytes, modified_ms, md5, checksum, content FROM part"            \
                 " WHERE upload = ?1 AND number > ?2 ORDER BY number")                            \
    X(PART_COUNT, "SELECT count(*) FROM part WHERE upload = ?1 AND content = ?2")                 \
    X(PART_DELETE, "DELETE FROM part WHERE upload = ?1")

#define S3_SQL_CONSTANT(name, text) S3_SQL_##name,
enum s3_sql { S3_STATEMENTS(S3_SQL_CONSTANT) S3_SQL_COUNT };
#undef S3_SQL_CONSTANT

#endif
