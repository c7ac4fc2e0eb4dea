/* SPDX-License-Identifier: Apache-2.0 */
/*
 * description.c: job.json becomes a plan. Texts stay in the JSON document, which is kept as long as
 * the plan; arrays, and texts that are put together, are in one list of blocks.
 */
#include "job/description.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define PATH_BYTES     4096
#define VARIABLES_MAX  512
#define WORDS_MAX      4096
#define TEXT_BYTES_MAX (128u << 10) /* the kernel's limit of one argument or variable */
#define NUMBER_MAX     INT64_C(1000000000000000)

struct block {
    struct block *next;
    _Alignas(max_align_t) char memory[];
};

struct reader {
    struct job_description description; /* first: what is given out is this */
    const char *folder;
    json_t *document;
    struct block *blocks;
};

/* ---- memory ---- */

static enum shoal_status new_array(struct reader *reader, size_t count, size_t bytes, void **out)
{
    struct block *block;
    BASE_ASSERT(count < SIZE_MAX / 2 / bytes);
    TRY(base_alloc(sizeof(*block) + count * bytes, "a job's description", (void **)&block));
    block->next = reader->blocks;
    reader->blocks = block;
    *out = block->memory;
    return SHOAL_OK;
}

void job_description_free(struct job_description *description)
{
    struct reader *reader = (struct reader *)description;
    if (reader == NULL)
        return;
    while (reader->blocks != NULL) {
        struct block *block = reader->blocks;
        reader->blocks = block->next;
        base_free(block);
    }
    json_decref(reader->document);
    base_free(reader);
}

/* ---- values ---- */

static enum shoal_status wrong(const char *where, const char *what)
{
    return base_error(SHOAL_ERR_FORMAT, "the job's description: \"%s\" %s", where, what);
}

static enum shoal_status read_text(const json_t *value, const char *where, const char **out)
{
    if (!json_is_string(value))
        return wrong(where, "must be a text");
    size_t bytes = json_string_length(value);
    const char *text = json_string_value(value);
    if (strlen(text) != bytes)
        return wrong(where, "must not hold a NUL");
    if (bytes >= TEXT_BYTES_MAX)
        return wrong(where, "is longer than 128 KiB");
    *out = text;
    return SHOAL_OK;
}

/* A number; stays as it is when there is none. */
static enum shoal_status read_number(const json_t *object, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL)
        return SHOAL_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > NUMBER_MAX)
        return wrong(name, "must be a whole number, 0 or more");
    *out = json_integer_value(value);
    return SHOAL_OK;
}

static enum shoal_status read_limit(const json_t *object, const char *name, uint64_t *out)
{
    int64_t number = (int64_t)*out;
    TRY(read_number(object, name, &number));
    *out = (uint64_t)number;
    return SHOAL_OK;
}

/* All members of an object must be among these, NULL behind. */
static enum shoal_status check_members(json_t *object, const char *where, const char *const *names)
{
    const char *member;
    json_t *value;
    if (!json_is_object(object))
        return wrong(where, "must be an object");
    json_object_foreach(object, member, value)
    {
        bool known = false;
        for (int i = 0; names[i] != NULL; i++)
            known = known || strcmp(names[i], member) == 0;
        if (!known)
            return base_error(SHOAL_ERR_FORMAT,
                              "the job's description: \"%s\" has no member \"%s\"", where, member);
    }
    return SHOAL_OK;
}

/* Texts with a NULL behind. */
static enum shoal_status read_texts(struct reader *reader, const json_t *array, const char *where,
                                    const char ***out)
{
    const char **texts;
    if (!json_is_array(array) || json_array_size(array) > WORDS_MAX)
        return wrong(where, "must be a list of at most 4096 texts");
    TRY(new_array(reader, json_array_size(array) + 1, sizeof(*texts), (void **)&texts));
    for (size_t i = 0; i < json_array_size(array); i++)
        TRY(read_text(json_array_get(array, i), where, &texts[i]));
    *out = texts;
    return SHOAL_OK;
}

/* ---- parts ---- */

static enum shoal_status add_variables(struct reader *reader, json_t *object, char **variables,
                                       size_t *count)
{
    const char *name, *text;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        char *line;
        TRY(read_text(value, "environment", &text));
        if (*name == '\0' || strchr(name, '=') != NULL)
            return wrong("environment", "has a name that is empty or holds '='");
        size_t bytes = strlen(name) + strlen(text) + 2;
        TRY(new_array(reader, bytes, 1, (void **)&line));
        snprintf(line, bytes, "%s=%s", name, text);
        variables[(*count)++] = line;
    }
    return SHOAL_OK;
}

/* An instance's variables win over those of the job. */
static enum shoal_status read_environment(struct reader *reader, json_t *of_job,
                                          json_t *of_instance, char *const **out)
{
    json_t *merged = json_object();
    char **variables;
    size_t count = 0;
    if (merged == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a job's variables");
    if ((of_job != NULL && json_object_update(merged, of_job) != 0) ||
        (of_instance != NULL && json_object_update(merged, of_instance) != 0)) {
        json_decref(merged);
        return wrong("environment", "must be an object of texts");
    }
    enum shoal_status status = SHOAL_OK;
    if (json_object_size(merged) > VARIABLES_MAX)
        status = wrong("environment", "has more than 512 variables");
    if (status == SHOAL_OK)
        status = new_array(reader, json_object_size(merged) + 1, sizeof(*variables),
                           (void **)&variables);
    if (status == SHOAL_OK)
        status = add_variables(reader, merged, variables, &count);
    json_decref(merged);
    if (status == SHOAL_OK)
        *out = variables;
    return status;
}

/* Members that are missing stay as they are. */
static enum shoal_status read_limits(json_t *object, struct job_limits *limits)
{
    static const char *const members[] = {"memory_bytes",    "core_thousands",      "process_count",
                                          "open_file_count", "shared_memory_bytes", NULL};
    if (object == NULL)
        return SHOAL_OK;
    TRY(check_members(object, "limits", members));
    TRY(read_limit(object, "memory_bytes", &limits->memory_bytes));
    TRY(read_limit(object, "core_thousands", &limits->core_thousands));
    TRY(read_limit(object, "process_count", &limits->process_count));
    TRY(read_limit(object, "open_file_count", &limits->open_file_count));
    return read_limit(object, "shared_memory_bytes", &limits->shared_memory_bytes);
}

static enum shoal_status read_own_limits(struct reader *reader, json_t *object,
                                         struct job_instance_plan *instance)
{
    struct job_limits *limits;
    if (object == NULL)
        return SHOAL_OK;
    TRY(new_array(reader, 1, sizeof(*limits), (void **)&limits));
    *limits = reader->description.plan.limits;
    TRY(read_limits(object, limits));
    instance->limits = limits;
    return SHOAL_OK;
}

static enum shoal_status read_accelerators(const json_t *list, struct job_instance_plan *instance)
{
    if (list == NULL)
        return SHOAL_OK;
    if (!json_is_array(list))
        return wrong("accelerators", "must be a list of numbers");
    instance->accelerators_hidden = UINT64_MAX;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > 63)
            return wrong("accelerators", "must be a list of numbers from 0 to 63");
        instance->accelerators_hidden &= ~(UINT64_C(1) << json_integer_value(value));
    }
    return SHOAL_OK;
}

static enum shoal_status read_access(const json_t *value, enum job_access *out)
{
    static const char *const names[] = {"read-only", "writable", "own-copy"};
    const char *text = NULL;
    *out = JOB_READ_ONLY;
    if (value == NULL)
        return SHOAL_OK;
    TRY(read_text(value, "access", &text));
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum job_access)i;
            return SHOAL_OK;
        }
    }
    return wrong("access", "must be read-only, writable or own-copy");
}

static enum shoal_status read_mounts(struct reader *reader, const json_t *array,
                                     const struct job_mount **out, int *out_count)
{
    static const char *const members[] = {"from", "to", "access", NULL};
    struct job_mount *mounts;
    size_t count = json_array_size(array);
    if (array == NULL)
        return SHOAL_OK;
    if (!json_is_array(array) || count > JOB_MOUNTS_MAX)
        return wrong("mounts", "must be a list of at most 256 objects");
    TRY(new_array(reader, count, sizeof(*mounts), (void **)&mounts));
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(array, i);
        TRY(check_members(object, "mounts", members));
        TRY(read_text(json_object_get(object, "from"), "from", &mounts[i].from));
        TRY(read_text(json_object_get(object, "to"), "to", &mounts[i].to));
        TRY(read_access(json_object_get(object, "access"), &mounts[i].access));
    }
    *out = mounts;
    *out_count = (int)count;
    return SHOAL_OK;
}

static enum shoal_status read_instance(struct reader *reader, json_t *object, size_t index,
                                       struct job_instance_plan *instance)
{
    static const char *const members[] = {"folder",       "log",    "environment", "limits",
                                          "accelerators", "mounts", NULL};
    json_t *folder = json_object_get(object, "folder");
    TRY(check_members(object, "instances", members));
    TRY(read_text(json_object_get(object, "log"), "log", &instance->log_path));
    if (folder != NULL) {
        TRY(read_text(folder, "folder", &instance->folder));
    } else {
        char *path;
        TRY(new_array(reader, PATH_BYTES, 1, (void **)&path));
        snprintf(path, PATH_BYTES, "%s/algo-%zu", reader->folder, index + 1);
        instance->folder = path;
    }
    TRY(read_own_limits(reader, json_object_get(object, "limits"), instance));
    TRY(read_accelerators(json_object_get(object, "accelerators"), instance));
    TRY(read_mounts(reader, json_object_get(object, "mounts"), &instance->mounts,
                    &instance->mount_count));
    return read_environment(reader, json_object_get(reader->document, "environment"),
                            json_object_get(object, "environment"), &instance->environment);
}

static enum shoal_status read_instances(struct reader *reader)
{
    json_t *array = json_object_get(reader->document, "instances");
    struct job_instance_plan *instances;
    size_t count = json_array_size(array);
    if (count < 1 || count > JOB_INSTANCES_MAX)
        return wrong("instances", "must be a list of 1 to 100 objects");
    TRY(new_array(reader, count, sizeof(*instances), (void **)&instances));
    for (size_t i = 0; i < count; i++)
        TRY(read_instance(reader, json_array_get(array, i), i, &instances[i]));
    reader->description.plan.instances = instances;
    reader->description.plan.count = (int)count;
    return SHOAL_OK;
}

static enum shoal_status read_companions(struct reader *reader)
{
    struct job_description *description = &reader->description;
    json_t *array = json_object_get(reader->document, "companions");
    size_t count = json_array_size(array);
    if (array != NULL && (!json_is_array(array) || count > JOB_COMPANIONS_MAX))
        return wrong("companions", "must be a list of at most 4 lists of texts");
    for (size_t i = 0; i < count; i++) {
        const char **words;
        TRY(read_texts(reader, json_array_get(array, i), "companions", &words));
        if (words[0] == NULL)
            return wrong("companions", "has one that is empty");
        description->companions[i] = (char *const *)words;
    }
    description->companion_count = (int)count;
    return SHOAL_OK;
}

static enum shoal_status read_doors(struct reader *reader)
{
    static const char *const members[] = {"port", "to", NULL};
    json_t *array = json_object_get(reader->document, "doors");
    struct job_door *doors;
    size_t count = json_array_size(array);
    if (array == NULL)
        return SHOAL_OK;
    if (!json_is_array(array) || count > JOB_DOORS_MAX)
        return wrong("doors", "must be a list of at most 8 objects");
    TRY(new_array(reader, count, sizeof(*doors), (void **)&doors));
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(array, i);
        int64_t port = 0;
        TRY(check_members(object, "doors", members));
        TRY(read_number(object, "port", &port));
        if (port < 1 || port > 65535)
            return wrong("port", "must be 1 to 65535");
        doors[i].port = (int)port;
        TRY(read_text(json_object_get(object, "to"), "to", &doors[i].to));
    }
    reader->description.plan.doors = doors;
    reader->description.plan.door_count = (int)count;
    return SHOAL_OK;
}

static enum shoal_status read_times(struct reader *reader)
{
    struct job_description *description = &reader->description;
    description->max_runtime_s = JOB_RUNTIME_S_DEFAULT;
    description->grace_s = JOB_GRACE_S_DEFAULT;
    description->failure_grace_s = JOB_FAILURE_GRACE_S;
    TRY(read_number(reader->document, "max_runtime_s", &description->max_runtime_s));
    TRY(read_number(reader->document, "grace_s", &description->grace_s));
    TRY(read_number(reader->document, "failure_grace_s", &description->failure_grace_s));
    if (description->max_runtime_s < 1 || description->max_runtime_s > JOB_RUNTIME_S_MAX)
        return wrong("max_runtime_s", "must be 1 second to 28 days");
    if (description->grace_s > JOB_RUNTIME_S_MAX ||
        description->failure_grace_s > JOB_RUNTIME_S_MAX)
        return wrong("grace_s", "must be at most 28 days");
    return SHOAL_OK;
}

static enum shoal_status read_optional(const json_t *document, const char *name, const char **out)
{
    const json_t *value = json_object_get(document, name);
    return value != NULL ? read_text(value, name, out) : SHOAL_OK;
}

static enum shoal_status read_document(struct reader *reader)
{
    static const char *const members[] = {
        "name",        "program",       "directory",       "root",   "root_access",
        "environment", "instances",     "mounts",          "hidden", "limits",
        "grace_s",     "max_runtime_s", "failure_grace_s", "doors",  "companions",
        NULL};
    enum job_access root_access = JOB_READ_ONLY;
    struct job_plan *plan = &reader->description.plan;
    json_t *document = reader->document;
    const char **program = NULL, **hidden = NULL;
    TRY(check_members(document, "job", members));
    TRY(read_text(json_object_get(document, "name"), "name", &plan->name));
    TRY(read_texts(reader, json_object_get(document, "program"), "program", &program));
    plan->program = (char *const *)program;
    TRY(read_optional(document, "directory", &plan->directory));
    TRY(read_optional(document, "root", &plan->root));
    if (json_object_get(document, "hidden") != NULL)
        TRY(read_texts(reader, json_object_get(document, "hidden"), "hidden", &hidden));
    plan->hidden = hidden;
    TRY(read_access(json_object_get(document, "root_access"), &root_access));
    plan->root_copied = root_access == JOB_OWN_COPY;
    TRY(read_limits(json_object_get(document, "limits"), &plan->limits));
    TRY(read_instances(reader));
    TRY(read_mounts(reader, json_object_get(document, "mounts"), &plan->mounts,
                    &plan->mount_count));
    TRY(read_doors(reader));
    TRY(read_companions(reader));
    return read_times(reader);
}

static enum shoal_status load(const char *folder, json_t **out)
{
    char path[PATH_BYTES];
    json_error_t error;
    if (folder[0] != '/' || strlen(folder) + 64 > PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the job's folder '%s' is not an absolute path of at "
                          "most 4000 bytes",
                          folder);
    snprintf(path, sizeof(path), "%s/" JOB_DESCRIPTION_FILE, folder);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    if (fseek(file, 0, SEEK_END) != 0 || ftell(file) > (long)JOB_DESCRIPTION_BYTES_MAX) {
        fclose(file);
        return base_error(SHOAL_ERR_LIMIT, "%s is larger than 4 MiB", path);
    }
    rewind(file);
    *out = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (*out == NULL)
        return base_error(SHOAL_ERR_FORMAT, "%s, line %d, column %d: %s", path, error.line,
                          error.column, error.text);
    return SHOAL_OK;
}

enum shoal_status job_description_read(const char *folder, struct job_description **out)
{
    struct reader *reader;
    json_t *document = NULL;
    TRY(load(folder, &document));
    enum shoal_status status = BASE_NEW(&reader, "a job's description");
    if (status != SHOAL_OK) {
        json_decref(document);
        return status;
    }
    reader->folder = folder;
    reader->document = document;
    status = read_document(reader);
    if (status != SHOAL_OK) {
        job_description_free(&reader->description);
        return status;
    }
    *out = &reader->description;
    return SHOAL_OK;
}
