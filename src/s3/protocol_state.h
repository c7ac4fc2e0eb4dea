/* SPDX-License-Identifier: Apache-2.0 */
/* protocol_state.h: a request of S3 on its way; for this room's protocol*.c only. */
#ifndef SHOAL_S3_PROTOCOL_STATE_H
#define SHOAL_S3_PROTOCOL_STATE_H

#include "http/http.h"
#include "s3/protocol.h"
#include "s3/xml_read.h"
#include "s3/xml_write.h"

#define S3_OWNER_ID   "5b0a15f0c0ffee5b0a15f0c0ffee5b0a15f0c0ffee5b0a15f0c0ffee5b0a15f0"
#define S3_OWNER_NAME "shoal"

enum s3_body { S3_BODY_NONE, S3_BODY_COLLECT, S3_BODY_STREAM };

struct s3_call;

/* An operation. Functions return a code, which is answered as an error unless they have replied. */
struct s3_operation {
    const char *name;
    enum s3_body body;
    enum s3_code (*begin)(struct s3_call *call);    /* of a streamed body */
    enum s3_code (*complete)(struct s3_call *call); /* replies, or waits (s3_call_wait) */
    enum s3_code (*resumed)(struct s3_call *call);  /* what it waited for is done, and is OK */
};

struct s3_call {
    struct s3_store *store;
    struct http_request *request;
    const struct s3_operation *operation;
    char bucket[256]; /* "": none. Longer than a bucket's name may be, so that it is not found */
    const char *key;  /* "": none */
    /* What the store fills in, and when it is done. */
    enum s3_code code;
    char text[512]; /* of its error */
    struct s3_put *put;
    struct s3_put_expected expected;
    enum s3_algorithm algorithm; /* of the body */
    struct s3_written written;
    char upload[S3_UPLOAD_NAME_BYTES];
    struct s3_delete_body deleted;
    int source_fd; /* of UploadPartCopy */
    char *owned;   /* a text that is freed at the end */
};

/* The store's done: keeps the outcome and has the request go on. Pass it with the call as user,
 * after s3_call_wait. */
void s3_call_done(void *call, enum s3_code code);
void s3_call_wait(struct s3_call *call);

/* "" where it is not there. */
const char *s3_call_query(const struct s3_call *call, const char *name);
bool s3_call_asks(const struct s3_call *call, const char *name);
const char *s3_call_header(const struct s3_call *call, const char *name); /* NULL: none */
/* A number of the query within [0, most]; `otherwise` where it is not there. INVALID_ARGUMENT. */
enum s3_code s3_call_number(const struct s3_call *call, const char *name, int most, int otherwise,
                            int *out);

enum s3_code s3_reply_empty(struct s3_call *call, int status);
/* Takes the document over, and ends it. */
enum s3_code s3_reply_xml(struct s3_call *call, struct s3_xml *xml, const char *root);
void s3_reply_header(struct s3_call *call, const char *name, const char *value);
void s3_reply_etag(struct s3_call *call, const char *etag);
/* As HTTP has it: "Sat, 31 Jan 2026 23:59:59 GMT". */
void s3_reply_date(struct s3_call *call, const char *name, int64_t ms);

/* The one owner of everything, as an element. */
void s3_owner_write(struct s3_xml *xml);
/* "ChecksumCRC32" or another; nothing where there is none. */
void s3_checksum_write(struct s3_xml *xml, const struct s3_checksum *checksum);

/* What the request says of the object: lines of headers, tags. Texts are owned by the caller
 * (base_free). METADATA_TOO_LARGE, INVALID_STORAGE_CLASS. */
enum s3_code s3_headers_of(struct s3_call *call, char **headers);
/* Only the lines that s3_header_is_of_storage. */
enum s3_code s3_headers_of_storage(struct s3_call *call, char **headers);
enum s3_code s3_tags_of(struct s3_call *call, char **tags); /* "key=value&…" */
/* Puts the lines in the reply, with the query's response-* in their place. */
void s3_headers_reply(struct s3_call *call, const char *headers);

/* If-Match and so on, with `prefix` before their names ("", "x-amz-copy-source-"). */
void s3_conditions_of(struct s3_call *call, const char *prefix, struct s3_conditions *out);
/* Which checksum the request has or asks for, and its value if that is in a header. */
enum s3_code s3_checksum_of(struct s3_call *call, enum s3_algorithm *algorithm, const char **value);
void s3_checksum_reply(struct s3_call *call, const struct s3_checksum *checksum);
/* A collected body against Content-MD5 and checksum headers. */
enum s3_code s3_body_check(struct s3_call *call);
/* "/bucket/key?versionId=null" of x-amz-copy-source, into call->owned. */
enum s3_code s3_copy_source_of(struct s3_call *call, const char **bucket, const char **key);

/* The bucket's and key's place in the request; INVALID_BUCKET_NAME. */
enum s3_code s3_call_locate(struct s3_call *call);
/* The operation that a request asks for. NOT_IMPLEMENTED with its name. */
enum s3_code s3_call_route(struct s3_call *call);

enum s3_code s3_buckets_list(struct s3_call *call);
enum s3_code s3_bucket_put(struct s3_call *call);
enum s3_code s3_bucket_created(struct s3_call *call);
enum s3_code s3_bucket_head(struct s3_call *call);
enum s3_code s3_bucket_remove(struct s3_call *call);
enum s3_code s3_bucket_location(struct s3_call *call);
enum s3_code s3_bucket_versioning(struct s3_call *call);
enum s3_code s3_list_reply_v1(struct s3_call *call);
enum s3_code s3_list_reply_v2(struct s3_call *call);
enum s3_code s3_list_reply_versions(struct s3_call *call);
enum s3_code s3_uploads_list(struct s3_call *call);
enum s3_code s3_objects_delete(struct s3_call *call);
enum s3_code s3_objects_deleted(struct s3_call *call);

enum s3_code s3_bucket_acl(struct s3_call *call);
enum s3_code s3_object_acl(struct s3_call *call);
enum s3_code s3_attributes_get(struct s3_call *call);

enum s3_code s3_get_reply(struct s3_call *call);
enum s3_code s3_put_object_begin(struct s3_call *call);
enum s3_code s3_put_complete(struct s3_call *call);
enum s3_code s3_put_done(struct s3_call *call);
enum s3_code s3_copy_object(struct s3_call *call);
enum s3_code s3_copied(struct s3_call *call);
enum s3_code s3_delete_object(struct s3_call *call);
enum s3_code s3_no_content(struct s3_call *call);
enum s3_code s3_tags_get(struct s3_call *call);
enum s3_code s3_tags_put(struct s3_call *call);
enum s3_code s3_tags_delete(struct s3_call *call);
enum s3_code s3_ok(struct s3_call *call);

enum s3_code s3_upload_begin(struct s3_call *call);
enum s3_code s3_upload_begun(struct s3_call *call);
enum s3_code s3_part_put_begin(struct s3_call *call);
enum s3_code s3_part_copy(struct s3_call *call);
enum s3_code s3_part_copied(struct s3_call *call);
enum s3_code s3_parts_list(struct s3_call *call);
enum s3_code s3_upload_end(struct s3_call *call);
enum s3_code s3_upload_ended(struct s3_call *call);
enum s3_code s3_upload_give_up(struct s3_call *call);

#endif
