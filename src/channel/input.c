/* SPDX-License-Identifier: Apache-2.0 */
/* input.c: what a request says of its channels. */
#include "channel/input.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* ---- places ---- */

static enum shoal_status no_place(const char *text)
{
    return base_error(SHOAL_ERR_ARGUMENT,
                      "'%.300s' is no place in S3: it must be s3://bucket/key, with a bucket of at "
                      "most 63 and a key of at most 1024 bytes",
                      text);
}

/* "bucket.s3.us-east-1.amazonaws.com" or "s3.amazonaws.com": the bytes of the bucket before it. */
static bool split_host(const char *host, size_t bytes, size_t *bucket_bytes)
{
    static const char end[] = ".amazonaws.com";
    if (bytes < sizeof(end) || memcmp(host + bytes - sizeof(end) + 1, end, sizeof(end) - 1) != 0)
        return false;
    if (strncmp(host, "s3.", 3) == 0 || strncmp(host, "s3-", 3) == 0) {
        *bucket_bytes = 0;
        return true;
    }
    for (size_t i = 0; i + 4 < bytes; i++) {
        if (strncmp(host + i, ".s3.", 4) == 0 || strncmp(host + i, ".s3-", 4) == 0) {
            *bucket_bytes = i;
            return i > 0;
        }
    }
    return false;
}

enum shoal_status channel_uri_parse(const char *text, struct channel_uri *out)
{
    const char *rest, *bucket;
    size_t bytes, host_bytes;
    if (strncmp(text, "s3://", 5) == 0) {
        bucket = text + 5;
        bytes = strcspn(bucket, "/");
        rest = bucket + bytes;
    } else if (strncmp(text, "https://", 8) == 0) {
        bucket = text + 8;
        host_bytes = strcspn(bucket, "/");
        rest = bucket + host_bytes;
        if (!split_host(bucket, host_bytes, &bytes))
            return no_place(text);
        if (bytes == 0) {
            bucket = rest + (*rest == '/');
            bytes = strcspn(bucket, "/");
            rest = bucket + bytes;
        }
    } else {
        return no_place(text);
    }
    rest += *rest == '/';
    if (bytes == 0 || bytes > S3_BUCKET_NAME_MAX || strlen(rest) > S3_KEY_BYTES_MAX)
        return no_place(text);
    snprintf(out->bucket, sizeof(out->bucket), "%.*s", (int)bytes, bucket);
    snprintf(out->key, sizeof(out->key), "%s", rest);
    return SHOAL_OK;
}

/* ---- members ---- */

const char *channel_request_text(const json_t *request, const char *const *path)
{
    for (; *path != NULL; path++)
        request = json_object_get(request, *path);
    return json_string_value(request);
}

static const char *text_of(const json_t *object, const char *name, const char *fallback)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL && *text != '\0' ? text : fallback;
}

static enum shoal_status wrong(const struct channel_input *input, const char *what)
{
    return base_error(SHOAL_ERR_ARGUMENT, "The channel '%s' %s", input->name, what);
}

static enum shoal_status read_mode(const json_t *request, const json_t *member,
                                   struct channel_input *input)
{
    const char *usual =
        text_of(json_object_get(request, "AlgorithmSpecification"), "TrainingInputMode", "File");
    const char *mode = text_of(member, "InputMode", usual);
    if (strcmp(mode, "File") == 0)
        input->mode = CHANNEL_FILE;
    else if (strcmp(mode, "FastFile") == 0)
        input->mode = CHANNEL_FAST_FILE;
    else if (strcmp(mode, "Pipe") == 0)
        input->mode = CHANNEL_PIPE;
    else
        return wrong(input, "has an input mode that is none of File, FastFile and Pipe.");
    return SHOAL_OK;
}

static enum shoal_status read_s3(const json_t *source, struct channel_input *input)
{
    const char *type = text_of(source, "S3DataType", "S3Prefix");
    if (strcmp(type, "S3Prefix") == 0)
        input->kind = CHANNEL_PREFIX;
    else if (strcmp(type, "ManifestFile") == 0)
        input->kind = CHANNEL_MANIFEST;
    else if (strcmp(type, "AugmentedManifestFile") == 0)
        input->kind = CHANNEL_AUGMENTED;
    else
        return wrong(input, "has an S3DataType that is not here: S3Prefix, ManifestFile and "
                            "AugmentedManifestFile are.");
    input->uri_text = text_of(source, "S3Uri", "");
    input->is_sharded =
        strcmp(text_of(source, "S3DataDistributionType", "FullyReplicated"), "ShardedByS3Key") == 0;
    input->attributes = json_object_get(source, "AttributeNames");
    input->groups = json_object_get(source, "InstanceGroupNames");
    return channel_uri_parse(input->uri_text, &input->uri);
}

static enum shoal_status read_file_system(const json_t *source, struct channel_input *input)
{
    input->kind = CHANNEL_FILE_SYSTEM;
    input->file_system = text_of(source, "FileSystemId", "");
    input->directory = text_of(source, "DirectoryPath", "/");
    input->is_lustre = strcmp(text_of(source, "FileSystemType", "EFS"), "FSxLustre") == 0;
    input->is_writable = strcmp(text_of(source, "FileSystemAccessMode", "ro"), "rw") == 0;
    return SHOAL_OK;
}

static enum shoal_status read_source(const json_t *member, struct channel_input *input)
{
    const json_t *source = json_object_get(member, "DataSource");
    const json_t *s3 = json_object_get(source, "S3DataSource");
    const json_t *file_system = json_object_get(source, "FileSystemDataSource");
    if (json_is_object(s3))
        return read_s3(s3, input);
    if (json_is_object(file_system))
        return read_file_system(file_system, input);
    return wrong(input, "has neither S3DataSource nor FileSystemDataSource.");
}

static bool is_empty(const json_t *list)
{
    return json_array_size(list) == 0;
}

/* Which members go together, as the API's documents say. */
static enum shoal_status check_together(const struct channel_input *input)
{
    if (input->kind == CHANNEL_AUGMENTED && input->mode != CHANNEL_PIPE)
        return wrong(input, "has an AugmentedManifestFile, which goes with Pipe mode only.");
    if (input->kind == CHANNEL_AUGMENTED && is_empty(input->attributes))
        return wrong(input, "has an AugmentedManifestFile and needs AttributeNames.");
    if (input->kind != CHANNEL_AUGMENTED && !is_empty(input->attributes))
        return wrong(input, "has AttributeNames, which go with an AugmentedManifestFile only.");
    if (input->kind == CHANNEL_FILE_SYSTEM && input->mode != CHANNEL_FILE)
        return wrong(input, "has a FileSystemDataSource, which goes with File mode only.");
    if (input->is_record_io && input->mode != CHANNEL_PIPE)
        return wrong(input, "has the RecordWrapperType RecordIO, which goes with Pipe mode only.");
    if (input->is_gzip && input->mode == CHANNEL_FAST_FILE)
        return wrong(input, "has the CompressionType Gzip, which does not go with FastFile mode.");
    if (input->is_gzip && input->kind == CHANNEL_FILE_SYSTEM)
        return wrong(input, "has the CompressionType Gzip, which goes with S3 only.");
    return SHOAL_OK;
}

static enum shoal_status check_groups(const struct channel_input *input,
                                      const struct channel_job *job)
{
    size_t i;
    const json_t *value;
    json_array_foreach(input->groups, i, value)
    {
        const char *group = json_string_value(value);
        bool is_known = false;
        for (int k = 0; group != NULL && k < job->host_count; k++)
            is_known = is_known || strcmp(job->hosts[k].group, group) == 0;
        if (!is_known)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "The channel '%s' is for the instance group '%.64s', which "
                              "ResourceConfig does not have.",
                              input->name, group != NULL ? group : "?");
    }
    return SHOAL_OK;
}

static enum shoal_status read_input(const struct channel_job *job, const json_t *member,
                                    struct channel_input *input)
{
    const json_t *shuffle = json_object_get(member, "ShuffleConfig");
    input->name = text_of(member, "ChannelName", "");
    if (*input->name == '\0' || strchr(input->name, '/') != NULL || strcmp(input->name, ".") == 0 ||
        strcmp(input->name, "..") == 0)
        return wrong(input, "has a name that can't be one of a folder.");
    TRY(read_mode(job->request, member, input));
    TRY(read_source(member, input));
    input->content_type = text_of(member, "ContentType", NULL);
    input->is_gzip = strcmp(text_of(member, "CompressionType", "None"), "Gzip") == 0;
    input->is_record_io = strcmp(text_of(member, "RecordWrapperType", "None"), "RecordIO") == 0;
    input->is_shuffled = json_is_object(shuffle);
    input->seed = (uint64_t)json_integer_value(json_object_get(shuffle, "Seed"));
    TRY(check_together(input));
    return check_groups(input, job);
}

enum shoal_status channel_inputs_read(const struct channel_job *job, struct channel_input **out,
                                      int *count)
{
    const json_t *list = json_object_get(job->request, "InputDataConfig");
    size_t size = json_array_size(list);
    struct channel_input *inputs;
    if (size > CHANNEL_INPUTS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "InputDataConfig has more than %d channels",
                          CHANNEL_INPUTS_MAX);
    TRY(BASE_NEW_ARRAY(&inputs, size + 1, "a job's channels"));
    enum shoal_status status = SHOAL_OK;
    for (size_t i = 0; status == SHOAL_OK && i < size; i++) {
        status = read_input(job, json_array_get(list, i), &inputs[i]);
        for (size_t k = 0; status == SHOAL_OK && k < i; k++) {
            if (strcmp(inputs[k].name, inputs[i].name) == 0)
                status = wrong(&inputs[i], "is there twice.");
        }
    }
    if (status != SHOAL_OK) {
        base_free(inputs);
        return status;
    }
    *out = inputs;
    *count = (int)size;
    return SHOAL_OK;
}

int channel_input_hosts(const struct channel_input *input, const struct channel_job *job,
                        int *hosts)
{
    int count = 0;
    for (int i = 0; i < job->host_count; i++) {
        bool is_in = is_empty(input->groups);
        size_t k;
        const json_t *group;
        json_array_foreach(input->groups, k, group)
        {
            is_in = is_in || strcmp(json_string_value(group), job->hosts[i].group) == 0;
        }
        if (is_in)
            hosts[count++] = i;
    }
    return count;
}
