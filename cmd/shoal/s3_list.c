/* SPDX-License-Identifier: Apache-2.0 */
/* s3_list.c: `shoal s3 ls`, `mb` and `rb`: buckets, and what is in them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "json_text.h"
#include "s3.h"
#include "scaled_text.h"

#define TIME_BYTES 24

static enum shoal_status refused(enum s3_code code)
{
    if (code == S3_OK)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_PEER_REFUSED, "%s", base_error_text());
}

static const char *time_text(int64_t ms, const char *format, char out[TIME_BYTES])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(out, TIME_BYTES, format, &parts);
    return out;
}

static void json_time_print(const char *name, int64_t ms)
{
    char time[TIME_BYTES];
    printf("\"%s\": \"%s\"", name, time_text(ms, "%Y-%m-%dT%H:%M:%SZ", time));
}

/* ---- buckets ----------------------------------------------------------------------------------
 */

static void bucket_print(const struct s3_session *session, const struct s3_bucket *bucket,
                         bool is_first)
{
    char time[TIME_BYTES];
    if (!session->wish->wants_json) {
        printf("%s %s\n", time_text(bucket->created_ms, "%Y-%m-%d %H:%M:%S", time), bucket->name);
        return;
    }
    fputs(is_first ? "\n  {\"name\": " : ",\n  {\"name\": ", stdout);
    json_print_string(bucket->name, stdout);
    fputs(", ", stdout);
    json_time_print("created", bucket->created_ms);
    fputc('}', stdout);
}

static enum shoal_status buckets_print(struct s3_session *session)
{
    struct s3_bucket *buckets;
    size_t count;
    TRY(refused(s3_client_bucket_list(session->client, &buckets, &count)));
    if (session->wish->wants_json)
        fputs("{\"buckets\": [", stdout);
    for (size_t i = 0; i < count; i++)
        bucket_print(session, &buckets[i], i == 0);
    if (session->wish->wants_json)
        fputs("\n]}\n", stdout);
    base_free(buckets);
    return SHOAL_OK;
}

/* ---- objects ----------------------------------------------------------------------------------
 */

struct listing {
    struct s3_session *session;
    const struct s3_side *side;
    size_t shown_from; /* keys are shown from behind this many bytes on */
    int64_t count;
};

static void json_entry_print(const struct s3_list_entry *entry, bool is_first)
{
    fputs(is_first ? "\n  " : ",\n  ", stdout);
    fputs(entry->is_prefix ? "{\"prefix\": " : "{\"key\": ", stdout);
    json_print_string(entry->key, stdout);
    if (!entry->is_prefix) {
        printf(", \"bytes\": %" PRId64 ", ", entry->bytes);
        json_time_print("modified", entry->modified_ms);
        fputs(", \"etag\": ", stdout);
        json_print_string(entry->etag, stdout);
    }
    fputc('}', stdout);
}

static void entry_print(struct listing *listing, const struct s3_list_entry *entry)
{
    char time[TIME_BYTES], size[32];
    const char *shown = entry->key + listing->shown_from;
    bool is_first = listing->count++ == 0;
    if (listing->session->wish->wants_json) {
        json_entry_print(entry, is_first);
        return;
    }
    if (entry->is_prefix) {
        printf("%30s %s\n", "PRE", shown);
        return;
    }
    if (listing->session->wish->is_human)
        snprintf(size, sizeof(size), "%s", scaled_bytes_text((double)entry->bytes));
    else
        snprintf(size, sizeof(size), "%" PRId64, entry->bytes);
    printf("%s %10s %s\n", time_text(entry->modified_ms, "%Y-%m-%d %H:%M:%S", time), size, shown);
}

static enum shoal_status pages_print(struct listing *listing, struct s3_client_listing *pages)
{
    while (!pages->is_over) {
        struct s3_list page;
        TRY(refused(s3_client_list(listing->session->client, pages, &page)));
        for (int i = 0; i < page.count; i++)
            if (s3_wish_takes(listing->session->wish, page.entries[i].key))
                entry_print(listing, &page.entries[i]);
        s3_list_release(&page);
    }
    return SHOAL_OK;
}

/* As far as a folder of a path: "a/b" shows "b" of "a/b" and "bc". */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

static enum shoal_status objects_print(struct s3_session *session, const struct s3_side *side)
{
    const struct s3_wish *wish = session->wish;
    struct listing listing = {.session = session, .side = side};
    struct s3_client_listing pages = {
        .bucket = side->bucket, .prefix = side->path, .delimiter = wish->is_recursive ? NULL : "/"};
    listing.shown_from = wish->is_recursive ? 0 : folder_bytes(side->path);
    if (wish->wants_json)
        fputs("{\"entries\": [", stdout);
    enum shoal_status status = pages_print(&listing, &pages);
    s3_client_listing_release(&pages);
    if (wish->wants_json)
        fputs("\n]}\n", stdout);
    TRY(status);
    if (listing.count > 0 || side->path[0] == '\0')
        return SHOAL_OK;
    base_error_clear();
    return SHOAL_ERR_STATE;
}

enum shoal_status s3_ls(struct s3_session *session)
{
    struct s3_side side;
    if (session->wish->word_count == 0 || strcmp(session->wish->words[0], "s3://") == 0)
        return buckets_print(session);
    TRY(s3_side_of(session->wish->words[0], &side));
    if (!side.is_remote)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not of the form s3://BUCKET[/PREFIX]",
                          session->wish->words[0]);
    return objects_print(session, &side);
}

/* ---- making and removing buckets ----------------------------------------------------------------
 */

static enum shoal_status bucket_of(const struct s3_session *session, struct s3_side *side)
{
    TRY(s3_side_of(session->wish->words[0], side));
    if (!side->is_remote || side->path[0] != '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not of the form s3://BUCKET",
                          session->wish->words[0]);
    return SHOAL_OK;
}

static void bucket_said(const struct s3_session *session, const char *verb, const char *bucket)
{
    if (session->wish->wants_json) {
        printf("{\"did\": \"%s\", \"bucket\": ", verb);
        json_print_string(bucket, stdout);
        fputs("}\n", stdout);
    } else if (!session->wish->is_quiet) {
        printf("%s: %s\n", verb, bucket);
    }
}

enum shoal_status s3_mb(struct s3_session *session)
{
    struct s3_side side;
    TRY(bucket_of(session, &side));
    TRY(refused(s3_client_bucket_create(session->client, side.bucket)));
    bucket_said(session, "make_bucket", side.bucket);
    return SHOAL_OK;
}

static enum shoal_status bucket_empty(struct s3_session *session, const char *bucket)
{
    struct s3_client_listing pages = {.bucket = bucket};
    enum s3_code code = S3_OK;
    while (!pages.is_over && code == S3_OK) {
        const char *keys[S3_LIST_KEYS_MAX];
        struct s3_list page;
        code = s3_client_list(session->client, &pages, &page);
        for (int i = 0; i < page.count && code == S3_OK; i++)
            keys[i] = page.entries[i].key;
        if (code == S3_OK && page.count > 0)
            code = s3_client_delete(session->client, bucket, keys, (size_t)page.count);
        s3_list_release(&page);
    }
    s3_client_listing_release(&pages);
    return refused(code);
}

enum shoal_status s3_rb(struct s3_session *session)
{
    struct s3_side side;
    TRY(bucket_of(session, &side));
    if (session->wish->is_forced)
        TRY(bucket_empty(session, side.bucket));
    TRY(refused(s3_client_bucket_delete(session->client, side.bucket)));
    bucket_said(session, "remove_bucket", side.bucket);
    return SHOAL_OK;
}
