/* SPDX-License-Identifier: Apache-2.0 */
/* channel_fixture.h: for tests of this room: a job in a folder beside a real store. */
#ifndef SHOAL_CHANNEL_FIXTURE_H
#define SHOAL_CHANNEL_FIXTURE_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "channel/channel.h"
#include "channel/tree.h"
#include "s3/store_fixture.h"

struct trial {
    struct fixture *fixture;
    struct s3_store *store;
    char folder[128];
    struct channel_host hosts[8];
    char names[8][24];
    struct channel_job job;
    json_t *request, *description;
};

static inline int trial_setup(void **state)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    void *fixture;
    if (trial == NULL || fixture_setup(&fixture) != 0)
        return -1;
    trial->fixture = fixture;
    trial->store = trial->fixture->store;
    snprintf(trial->folder, sizeof(trial->folder), "%s/job", trial->fixture->directory);
    mkdir(trial->folder, 0755);
    *state = trial;
    return bucket_make(trial->store, "bkt") == S3_OK ? 0 : -1;
}

static inline int trial_teardown(void **state)
{
    struct trial *trial = *state;
    void *fixture = trial->fixture;
    json_decref(trial->request);
    json_decref(trial->description);
    free(trial);
    return fixture_teardown(&fixture);
}

/* A job of `count` hosts with this request, in JSON where ' stands for ". */
static inline void trial_job(struct trial *trial, int count, const char *request)
{
    char *text = strdup(request);
    for (char *at = text; (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    json_decref(trial->request);
    trial->request = json_loads(text, 0, NULL);
    free(text);
    if (trial->request == NULL)
        fail_msg("not JSON: %s", request);
    for (int i = 0; i < count; i++) {
        snprintf(trial->names[i], sizeof(trial->names[i]), "algo-%d", i + 1);
        trial->hosts[i] =
            (struct channel_host){trial->names[i], "homogeneousCluster", "ml.m5.large"};
    }
    trial->job = (struct channel_job){.name = "trial",
                                      .request = trial->request,
                                      .folder = trial->folder,
                                      .hosts = trial->hosts,
                                      .host_count = count,
                                      .store = trial->store};
}

static inline enum shoal_status trial_prepare(struct trial *trial)
{
    json_t *instances = json_array();
    json_decref(trial->description);
    trial->description = json_pack("{s:o}", "instances", instances);
    for (int i = 0; i < trial->job.host_count; i++)
        json_array_append_new(instances, json_object());
    return channel_prepare(&trial->job, trial->description);
}

static inline void expect_ok(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

/* The text of a file below the job's folder; "-" if there is none. */
static inline const char *trial_text(const struct trial *trial, const char *path)
{
    static char text[1 << 16];
    char whole[512];
    snprintf(whole, sizeof(whole), "%s/%s", trial->folder, path);
    int fd = open(whole, O_RDONLY);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes >= 0 ? text : "-";
}

static inline void file_is(const struct trial *trial, const char *path, const char *text)
{
    const char *seen = trial_text(trial, path);
    if (strcmp(seen, text) != 0)
        fail_msg("%s has '%s', not '%s'", path, seen, text);
}

static inline void object_put(struct trial *trial, const char *key, const char *text)
{
    assert_int_equal(put_text(trial->store, "bkt", key, text), S3_OK);
}

/* An object of "hello\n", packed by gzip. */
static inline void hello_put_packed(struct trial *trial, const char *key)
{
    static const unsigned char packed[] = {0x1f, 0x8b, 0x08, 0,    0,    0,    0,    0,    0,
                                           0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 0x02, 0,
                                           0x20, 0x30, 0x3a, 0x36, 6,    0,    0,    0};
    struct s3_put_options options = {.bucket = "bkt", .key = key, .bytes = -1};
    assert_int_equal(put_with(trial->store, &options, NULL, packed, sizeof(packed), NULL), S3_OK);
}

static inline void object_is(struct trial *trial, const char *key, const char *text)
{
    char seen[4096] = "-";
    if (get_text(trial->store, "bkt", key, seen, sizeof(seen)) != S3_OK)
        snprintf(seen, sizeof(seen), "-");
    if (strcmp(seen, text) != 0)
        fail_msg("object %s has '%s', not '%s'", key, seen, text);
}

/* Where a host has `to` mounted from, below the job's folder, with " access" behind; "-": not. */
static inline const char *mount_of(struct trial *trial, int host, const char *to)
{
    static char text[512];
    json_t *lists[2] = {
        json_object_get(trial->description, "mounts"),
        json_object_get(
            json_array_get(json_object_get(trial->description, "instances"), (size_t)host),
            "mounts")};
    for (int i = 0; i < 2; i++) {
        size_t k;
        json_t *mount;
        json_array_foreach(lists[i], k, mount)
        {
            const char *from = NULL, *at = NULL, *access = NULL;
            json_unpack(mount, "{s:s, s:s, s:s}", "from", &from, "to", &at, "access", &access);
            if (strcmp(at, to) != 0)
                continue;
            size_t bytes = strlen(trial->folder);
            bool is_below = strncmp(from, trial->folder, bytes) == 0;
            snprintf(text, sizeof(text), "%s %s", is_below ? from + bytes + 1 : from, access);
            return text;
        }
    }
    return "-";
}

#define TRIAL_TEST(name) cmocka_unit_test_setup_teardown(name, trial_setup, trial_teardown)

#endif
