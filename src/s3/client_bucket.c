/* SPDX-License-Identifier: Apache-2.0 */
/* client_bucket.c: buckets, lists and deletions by the client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/text.h"
#include "s3/client_state.h"
#include "s3/xml_read.h"

#define REGION_OF_NONE "us-east-1" /* whose buckets are made without saying where */

/* -------------------------------------------------------------------------------------- buckets */

enum s3_code s3_client_bucket_create(struct s3_client *client, const char *name)
{
    struct s3_request request = {.method = "PUT", .bucket = name};
    struct http_text body = {0};
    if (strcmp(client->endpoint.region, REGION_OF_NONE) != 0) {
        http_text_put(&body, "<CreateBucketConfiguration "
                             "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        http_text_element(&body, "LocationConstraint", client->endpoint.region);
        http_text_put(&body, "</CreateBucketConfiguration>");
    }
    enum s3_code code = s3_from_status(http_text_status(&body));
    request.body = body.bytes;
    request.body_bytes = body.count;
    if (code == S3_OK)
        code = s3_client_do(client, &request);
    http_text_free(&body);
    return code;
}

enum s3_code s3_client_bucket_delete(struct s3_client *client, const char *name)
{
    return s3_client_do(client, &(struct s3_request){.method = "DELETE", .bucket = name});
}

enum s3_code s3_client_bucket_find(struct s3_client *client, const char *name)
{
    return s3_client_do(client, &(struct s3_request){.method = "HEAD", .bucket = name});
}

struct bucket_reader {
    struct s3_bucket *buckets;
    size_t count, room;
    struct s3_bucket bucket; /* the one that is being read */
};

static enum s3_code bucket_add(struct bucket_reader *reader)
{
    if (reader->count == S3_BUCKETS_MAX)
        return s3_error(S3_INTERNAL_ERROR, "the service has more than %d buckets", S3_BUCKETS_MAX);
    if (reader->count == reader->room) {
        struct s3_bucket *more;
        size_t room = reader->room * 2 + 16;
        S3_TRY(s3_from_status(BASE_NEW_ARRAY(&more, room, "a list of buckets")));
        if (reader->count > 0)
            memcpy(more, reader->buckets, reader->count * sizeof(*more));
        base_free(reader->buckets);
        reader->buckets = more;
        reader->room = room;
    }
    reader->buckets[reader->count++] = reader->bucket;
    reader->bucket = (struct s3_bucket){0};
    return S3_OK;
}

static enum s3_code bucket_leave(void *user, const char *path, const char *text)
{
    struct bucket_reader *reader = user;
    if (strcmp(path, "ListAllMyBucketsResult/Buckets/Bucket") == 0)
        return bucket_add(reader);
    if (strcmp(path, "ListAllMyBucketsResult/Buckets/Bucket/Name") == 0)
        snprintf(reader->bucket.name, sizeof(reader->bucket.name), "%s", text);
    if (strcmp(path, "ListAllMyBucketsResult/Buckets/Bucket/CreationDate") == 0)
        reader->bucket.created_ms = s3_time_of(text);
    return S3_OK;
}

enum s3_code s3_client_bucket_list(struct s3_client *client, struct s3_bucket **out, size_t *count)
{
    struct http_answer answer;
    struct bucket_reader reader = {0};
    S3_TRY(s3_client_send(client, &(struct s3_request){.method = "GET"}, &answer, NULL));
    enum s3_code code =
        s3_xml_walk(http_answer_text(&answer), answer.body.count, bucket_leave, &reader);
    http_answer_free(&answer);
    if (code != S3_OK) {
        base_free(reader.buckets);
        return code;
    }
    *out = reader.buckets;
    *count = reader.count;
    return S3_OK;
}

/* ---------------------------------------------------------------------------------------- lists */

struct list_reader {
    struct s3_list *list;
    /* Keys, each with its NUL. Until the end entries hold their places, counted from 1. */
    struct http_text texts;
    struct s3_list_entry entry;
    char *token;
    bool is_truncated;
};

static enum s3_code entry_add(struct list_reader *reader, bool is_prefix)
{
    struct s3_list *list = reader->list;
    if (list->count == S3_LIST_KEYS_MAX || reader->entry.bytes < 0 || reader->entry.key == NULL)
        return s3_error(S3_MALFORMED_XML, NULL);
    reader->entry.is_prefix = is_prefix;
    list->entries[list->count++] = reader->entry;
    reader->entry = (struct s3_list_entry){0};
    return S3_OK;
}

/* Keys come with %XX, because XML can't hold all that keys may. */
static enum s3_code key_take(struct list_reader *reader, const char *text)
{
    size_t place = reader->texts.count, count = strlen(text);
    http_text_add(&reader->texts, text, count + 1);
    S3_TRY(s3_from_status(http_text_status(&reader->texts)));
    S3_TRY(s3_from_status(http_decode(reader->texts.bytes + place, &count, true)));
    reader->texts.bytes[place + count] = '\0';
    reader->texts.count = place + count + 1;
    reader->entry.key = (const char *)(place + 1);
    return S3_OK;
}

static enum s3_code entry_field(struct list_reader *reader, const char *field, const char *text)
{
    struct s3_list_entry *entry = &reader->entry;
    if (strcmp(field, "Key") == 0)
        return key_take(reader, text);
    if (strcmp(field, "Size") == 0)
        entry->bytes = strtoll(text, NULL, 10);
    else if (strcmp(field, "LastModified") == 0)
        entry->modified_ms = s3_time_of(text);
    else if (strcmp(field, "ETag") == 0)
        s3_etag_of(text, entry->etag);
    return S3_OK;
}

static enum s3_code list_leave(void *user, const char *path, const char *text)
{
    static const char root[] = "ListBucketResult/", contents[] = "Contents/";
    struct list_reader *reader = user;
    if (strncmp(path, root, sizeof(root) - 1) != 0)
        return S3_OK;
    path += sizeof(root) - 1;
    if (strncmp(path, contents, sizeof(contents) - 1) == 0)
        return entry_field(reader, path + sizeof(contents) - 1, text);
    if (strcmp(path, "Contents") == 0)
        return entry_add(reader, false);
    if (strcmp(path, "CommonPrefixes/Prefix") == 0)
        return key_take(reader, text);
    if (strcmp(path, "CommonPrefixes") == 0)
        return entry_add(reader, true);
    if (strcmp(path, "IsTruncated") == 0)
        reader->is_truncated = strcmp(text, "true") == 0;
    if (strcmp(path, "NextContinuationToken") == 0 && reader->token == NULL)
        return s3_from_status(base_strdup(text, "where a list goes on", &reader->token));
    return S3_OK;
}

/* Keys and prefixes come apart; both together in the order of their bytes are the list. */
static int entry_compare(const void *left, const void *right)
{
    const struct s3_list_entry *a = left, *b = right;
    return strcmp(a->key, b->key);
}

/* Callers count on keys that begin as they asked. */
static enum s3_code keys_place(struct s3_list *list, const char *prefix)
{
    size_t bytes = prefix != NULL ? strlen(prefix) : 0;
    for (int i = 0; i < list->count; i++) {
        const char *key = (const char *)list->texts + (size_t)list->entries[i].key - 1;
        if (bytes > 0 && strncmp(key, prefix, bytes) != 0)
            return s3_error(S3_MALFORMED_XML, "it has a key that was not asked for");
        list->entries[i].key = key;
    }
    return S3_OK;
}

static enum s3_code page_read(struct list_reader *reader, const struct http_answer *answer,
                              const char *prefix)
{
    struct s3_list *list = reader->list;
    S3_TRY(s3_from_status(BASE_NEW_ARRAY(&list->entries, S3_LIST_KEYS_MAX, "a list of keys")));
    enum s3_code code =
        s3_xml_walk(http_answer_text(answer), answer->body.count, list_leave, reader);
    list->texts = reader->texts.bytes;
    if (code == S3_OK && reader->is_truncated && reader->token == NULL)
        code = s3_error(S3_MALFORMED_XML, "a list that goes on does not say where");
    if (code == S3_OK)
        code = keys_place(list, prefix);
    if (code != S3_OK)
        return s3_error(code, "the service's list can't be read: %s", base_error_text());
    qsort(list->entries, (size_t)list->count, sizeof(*list->entries), entry_compare);
    list->is_truncated = reader->is_truncated;
    return S3_OK;
}

static void listing_ask(const struct s3_client_listing *listing, struct s3_request *request,
                        char limit[16])
{
    s3_request_query(request, "list-type", "2");
    s3_request_query(request, "encoding-type", "url");
    if (listing->prefix != NULL && listing->prefix[0] != '\0')
        s3_request_query(request, "prefix", listing->prefix);
    if (listing->delimiter != NULL && listing->delimiter[0] != '\0')
        s3_request_query(request, "delimiter", listing->delimiter);
    if (listing->token != NULL)
        s3_request_query(request, "continuation-token", listing->token);
    else if (listing->after != NULL && listing->after[0] != '\0')
        s3_request_query(request, "start-after", listing->after);
    if (listing->limit > 0) {
        snprintf(limit, 16, "%d", listing->limit);
        s3_request_query(request, "max-keys", limit);
    }
}

enum s3_code s3_client_list(struct s3_client *client, struct s3_client_listing *listing,
                            struct s3_list *out)
{
    char limit[16];
    struct http_answer answer;
    struct s3_request request = {.method = "GET", .bucket = listing->bucket};
    struct list_reader reader = {.list = out};
    *out = (struct s3_list){0};
    if (listing->is_over)
        return S3_OK;
    listing_ask(listing, &request, limit);
    S3_TRY(s3_client_send(client, &request, &answer, NULL));
    enum s3_code code = page_read(&reader, &answer, listing->prefix);
    http_answer_free(&answer);
    if (code == S3_OK && listing->token != NULL && reader.token != NULL &&
        strcmp(listing->token, reader.token) == 0)
        code = s3_error(S3_MALFORMED_XML, "the service's list goes on where it was");
    if (code != S3_OK) {
        base_free(reader.token);
        s3_list_release(out);
        return code;
    }
    base_free(listing->token);
    listing->token = reader.token;
    listing->is_over = !out->is_truncated;
    return S3_OK;
}

void s3_client_listing_release(struct s3_client_listing *listing)
{
    base_free(listing->token);
    listing->token = NULL;
}

/* ------------------------------------------------------------------------------------- deletion */

struct deletion_reader {
    char key[S3_KEY_BYTES_MAX + 1], code[64], text[512];
};

/* The first error is what is told. */
static enum s3_code deletion_leave(void *user, const char *path, const char *text)
{
    struct deletion_reader *reader = user;
    if (strcmp(path, "DeleteResult/Error") == 0)
        return s3_error(S3_INTERNAL_ERROR, "%s was not deleted: %s: %s", reader->key, reader->code,
                        reader->text);
    if (strcmp(path, "DeleteResult/Error/Key") == 0)
        snprintf(reader->key, sizeof(reader->key), "%s", text);
    if (strcmp(path, "DeleteResult/Error/Code") == 0)
        snprintf(reader->code, sizeof(reader->code), "%s", text);
    if (strcmp(path, "DeleteResult/Error/Message") == 0)
        snprintf(reader->text, sizeof(reader->text), "%s", text);
    return S3_OK;
}

static enum s3_code deletion_send(struct s3_client *client, const char *bucket,
                                  const struct http_text *body)
{
    struct s3_digest_result digest;
    struct http_answer answer;
    char md5[S3_CHECKSUM_TEXT_BYTES];
    struct s3_request request = {.method = "POST",
                                 .bucket = bucket,
                                 .body = body->bytes,
                                 .body_bytes = body->count,
                                 .repeat = HTTP_REPEAT_ALWAYS};
    S3_TRY(s3_digest_of(S3_NO_CHECKSUM, body->bytes, body->count, &digest));
    s3_base64(digest.md5, S3_MD5_BYTES, md5);
    s3_request_query(&request, "delete", "");
    s3_request_header(&request, "content-md5", md5);
    s3_request_header(&request, "content-type", "application/xml");
    S3_TRY(s3_client_send(client, &request, &answer, NULL));
    struct deletion_reader reader = {.key = ""};
    enum s3_code code =
        s3_xml_walk(http_answer_text(&answer), answer.body.count, deletion_leave, &reader);
    http_answer_free(&answer);
    return code;
}

static enum s3_code page_delete(struct s3_client *client, const char *bucket,
                                const char *const *keys, size_t count)
{
    struct http_text body = {0};
    http_text_put(&body, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                         "<Quiet>true</Quiet>");
    for (size_t i = 0; i < count; i++) {
        http_text_put(&body, "<Object>");
        http_text_element(&body, "Key", keys[i]);
        http_text_put(&body, "</Object>");
    }
    http_text_put(&body, "</Delete>");
    enum s3_code code = s3_from_status(http_text_status(&body));
    if (code == S3_OK)
        code = deletion_send(client, bucket, &body);
    http_text_free(&body);
    return code;
}

/* XML has no form for these, so their keys go one by one. */
static bool has_control(const char *key)
{
    for (; *key != '\0'; key++)
        if ((unsigned char)*key < 0x20)
            return true;
    return false;
}

enum s3_code s3_client_delete(struct s3_client *client, const char *bucket, const char *const *keys,
                              size_t count)
{
    const char *page[S3_DELETE_KEYS_MAX];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (has_control(keys[i]) || count == 1)
            S3_TRY(s3_client_do(client, &(struct s3_request){
                                            .method = "DELETE", .bucket = bucket, .key = keys[i]}));
        else
            page[used++] = keys[i];
        if (used == S3_DELETE_KEYS_MAX || (i + 1 == count && used > 0)) {
            S3_TRY(page_delete(client, bucket, page, used));
            used = 0;
        }
    }
    return S3_OK;
}
