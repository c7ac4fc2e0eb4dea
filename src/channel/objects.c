/* SPDX-License-Identifier: Apache-2.0 */
/* objects.c: prefixes and manifests. */
#include "channel/objects.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "channel/bucket.h"

#define REGION "us-east-1" /* where nothing else is known */

enum shoal_status channel_objects_missing(const struct channel_job *job,
                                          const struct channel_input *input)
{
    const char *role = channel_request_text(job->request, (const char *const[]){"RoleArn", NULL});
    return base_error(
        SHOAL_ERR_ARGUMENT,
        "No S3 objects found under S3 URL \"%.300s\" given in input data source. Please ensure "
        "that "
        "the bucket exists in the selected region (" REGION "), that objects exist under that S3 "
        "prefix, and that the role \"%.200s\" has \"s3:ListBucket\" permissions on bucket \"%s\".",
        input->uri_text, role != NULL ? role : "", input->uri.bucket);
}

/* ---- order ---- */

/* SplitMix64: a step of a 64-bit counter, mixed. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ mixed >> 31;
}

enum shoal_status channel_order_create(uint32_t count, uint64_t seed, uint64_t epoch,
                                       uint32_t **out)
{
    uint64_t state = epoch;
    uint32_t *order;
    state = seed ^ next_random(&state);
    TRY(BASE_NEW_ARRAY(&order, (size_t)count + 1, "the order of objects"));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = (uint32_t)(next_random(&state) % (i + UINT64_C(1)));
        order[i] = order[other];
        order[other] = i;
    }
    *out = order;
    return SHOAL_OK;
}

/* ---- a prefix ---- */

struct prefix_walk {
    channel_object_visit visit;
    void *user;
    size_t strip_bytes;
    int64_t count;
    struct channel_object object;
};

static enum shoal_status visit_key(void *user, const struct s3_list_entry *entry)
{
    struct prefix_walk *walk = user;
    struct channel_object *object = &walk->object;
    size_t bytes = strlen(entry->key);
    object->is_folder = entry->bytes == 0 && bytes > 0 && entry->key[bytes - 1] == '/';
    object->path = entry->key + walk->strip_bytes;
    if (*object->path == '\0')
        return SHOAL_OK; /* the folder itself, as consoles make them */
    snprintf(object->uri.key, sizeof(object->uri.key), "%s", entry->key);
    walk->count += !object->is_folder;
    return walk->visit(walk->user, object);
}

/* How much of each key is left off. */
static enum shoal_status find_strip(const struct channel_job *job,
                                    const struct channel_input *input, size_t *strip_bytes)
{
    const char *prefix = input->uri.key, *slash = strrchr(prefix, '/');
    size_t bytes = strlen(prefix);
    struct s3_list list;
    *strip_bytes = slash != NULL ? (size_t)(slash - prefix) + 1 : 0;
    if (*strip_bytes == bytes)
        return SHOAL_OK;
    TRY(channel_bucket_list(job, &input->uri, "/", 2, &list));
    const char *first = list.count == 1 ? list.entries[0].key : "";
    bool is_file = strcmp(first, prefix) == 0;
    bool is_folder = strncmp(first, prefix, bytes) == 0 && strcmp(first + bytes, "/") == 0;
    int count = list.count;
    s3_list_release(&list);
    if (is_folder)
        *strip_bytes = bytes + 1;
    else if (input->mode == CHANNEL_FAST_FILE && count > 0 && !is_file)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "Failed to download data. For FastFile mode, partial S3 prefix is not "
                          "supported. S3 prefix has to end with a full file or folder. Add a "
                          "trailing '/' to the S3 prefix if it ends with a folder name that is "
                          "also a prefix for other folders.");
    return SHOAL_OK;
}

static enum shoal_status each_of_prefix(const struct channel_job *job,
                                        const struct channel_input *input,
                                        channel_object_visit visit, void *user)
{
    struct prefix_walk walk = {.visit = visit, .user = user, .object = {.uri = input->uri}};
    TRY(find_strip(job, input, &walk.strip_bytes));
    TRY(channel_bucket_each(job, &input->uri, visit_key, &walk));
    return walk.count > 0 ? SHOAL_OK : channel_objects_missing(job, input);
}

/* ---- a manifest ---- */

static enum shoal_status bad_manifest(const struct channel_input *input, const char *why)
{
    return base_error(SHOAL_ERR_ARGUMENT,
                      "the manifest %.300s is not a list of the form [{\"prefix\": "
                      "\"s3://bucket/some/prefix/\"}, \"relative/path\", ...]: %s",
                      input->uri_text, why);
}

static enum shoal_status visit_manifest(const struct channel_input *input, const json_t *list,
                                        channel_object_visit visit, void *user)
{
    const char *prefix = json_string_value(json_object_get(json_array_get(list, 0), "prefix"));
    struct channel_object object;
    struct channel_uri base;
    if (prefix == NULL || *prefix == '\0')
        return bad_manifest(input, "its first element has no prefix");
    TRY(channel_uri_parse(prefix, &base));
    object.uri = base;
    object.is_folder = false;
    for (size_t i = 1; i < json_array_size(list); i++) {
        object.path = json_string_value(json_array_get(list, i));
        if (object.path == NULL)
            return bad_manifest(input, "an element behind the first is no text");
        size_t used = strlen(base.key), room = sizeof(object.uri.key) - used;
        if (strlen(object.path) >= room)
            return bad_manifest(input, "a key is longer than 1024 bytes");
        memcpy(object.uri.key + used, object.path, strlen(object.path) + 1);
        TRY(visit(user, &object));
    }
    return json_array_size(list) > 1 ? SHOAL_OK : bad_manifest(input, "it names no object");
}

static enum shoal_status each_of_manifest(const struct channel_job *job,
                                          const struct channel_input *input,
                                          channel_object_visit visit, void *user)
{
    char *text;
    size_t bytes;
    json_error_t error;
    TRY(channel_bucket_read(job, &input->uri, CHANNEL_MANIFEST_BYTES_MAX, &text, &bytes));
    json_t *list = json_loadb(text, bytes, 0, &error);
    base_free(text);
    if (list == NULL)
        return bad_manifest(input, error.text);
    enum shoal_status status = json_is_array(list) ? visit_manifest(input, list, visit, user)
                                                   : bad_manifest(input, "it is no list");
    json_decref(list);
    return status;
}

enum shoal_status channel_objects_each(const struct channel_job *job,
                                       const struct channel_input *input,
                                       channel_object_visit visit, void *user)
{
    if (input->kind == CHANNEL_MANIFEST)
        return each_of_manifest(job, input, visit, user);
    return each_of_prefix(job, input, visit, user);
}
