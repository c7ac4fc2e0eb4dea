/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container.c: see container.h. An image is unpacked in the folder <image's id>; it is made under
 * another name first, so that what is there is whole. One image at a time, for all services that
 * share the folder.
 */
#include "job/container.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "job/capture.h"

#define PATH_BYTES       4096
#define ID_BYTES         160
#define CHECK_TIMEOUT_MS 5000
#define ASK_TIMEOUT_MS   60000
#define FETCH_TIMEOUT_MS 3600000
#define LOCK_POLL_MS     20
#define LIST_MAX         1024

/* What is wanted, and by whom it may be given up. */
struct wanted {
    const char *folder, *name;
    const atomic_bool *is_cancelled;
};

/* ---- the program ---- */

const char *container_program(void)
{
    static const char *const programs[] = {"podman", "docker"};
    const char *path = getenv("PATH");
    char file[PATH_BYTES];
    for (size_t i = 0; path != NULL && i < sizeof(programs) / sizeof(programs[0]); i++) {
        for (const char *at = path; *at != '\0'; at += *at == ':') {
            int length = (int)strcspn(at, ":");
            snprintf(file, sizeof(file), "%.*s/%s", length, at, programs[i]);
            if (length > 0 && access(file, X_OK) == 0)
                return programs[i];
            at += length;
        }
    }
    return NULL;
}

/* Runs "<program> a b c", NULL behind; *out may be NULL when what it prints is of no use. */
static enum shoal_status run(const char *const *words, int64_t timeout_ms,
                             const atomic_bool *is_cancelled, char **out)
{
    char *line[16], *text;
    size_t count = 0;
    line[count++] = (char *)container_program();
    while (words[count - 1] != NULL && count < sizeof(line) / sizeof(line[0]) - 1) {
        line[count] = (char *)words[count - 1];
        count++;
    }
    line[count] = NULL;
    if (line[0] == NULL)
        return base_error(SHOAL_ERR_SYSTEM, "neither podman nor docker is installed");
    TRY(capture_run(line, timeout_ms, is_cancelled, &text));
    if (out != NULL)
        *out = text;
    else
        base_free(text);
    return SHOAL_OK;
}

enum shoal_status container_check(void)
{
    const char *const version[] = {"version", NULL};
    return run(version, CHECK_TIMEOUT_MS, NULL, NULL);
}

/* What the program knows of an image: an object to be released by json_decref. */
static enum shoal_status inspect(const struct wanted *wanted, const char *name, json_t **out)
{
    const char *const words[] = {"image", "inspect", name, NULL};
    char *text;
    TRY(run(words, ASK_TIMEOUT_MS, wanted->is_cancelled, &text));
    json_t *list = json_loads(text, 0, NULL);
    base_free(text);
    json_t *image = json_incref(json_array_get(list, 0));
    json_decref(list);
    if (!json_is_object(image)) {
        json_decref(image);
        return base_error(SHOAL_ERR_FORMAT, "%s says nothing of the image %s", container_program(),
                          name);
    }
    *out = image;
    return SHOAL_OK;
}

/* What is fetched from another place than a registry ("oci:FOLDER") has another name or none then:
 * the last word of what the program prints. */
static enum shoal_status fetch(const struct wanted *wanted, json_t **out)
{
    const char *const pull[] = {"pull", "-q", wanted->name, NULL};
    char *name;
    if (inspect(wanted, wanted->name, out) == SHOAL_OK)
        return SHOAL_OK;
    TRY(run(pull, FETCH_TIMEOUT_MS, wanted->is_cancelled, &name));
    size_t end = strlen(name);
    while (end > 0 && isspace((unsigned char)name[end - 1]))
        name[--end] = '\0';
    while (end > 0 && !isspace((unsigned char)name[end - 1]))
        end--;
    enum shoal_status status = inspect(wanted, name + end, out);
    base_free(name);
    return status;
}

/* ---- unpacking ---- */

/* "sha256:ab12…" as the name of a folder. */
static enum shoal_status id_of(const json_t *image, char id[ID_BYTES])
{
    const char *text = json_string_value(json_object_get(image, "Id"));
    const char *colon = text != NULL ? strrchr(text, ':') : NULL;
    const char *digits = colon != NULL ? colon + 1 : text;
    for (const char *at = digits; at != NULL && *at != '\0'; at++)
        if (!isxdigit((unsigned char)*at))
            digits = NULL;
    if (digits == NULL || strlen(digits) < 12 || snprintf(id, ID_BYTES, "%s", digits) >= ID_BYTES)
        return base_error(SHOAL_ERR_FORMAT, "the image has no id");
    return SHOAL_OK;
}

/* The container that it takes goes again in any case. */
static enum shoal_status export_to(const struct wanted *wanted, const char *image,
                                   const char *archive)
{
    const char *const create[] = {"create", image, "train", NULL};
    char *id;
    TRY(run(create, FETCH_TIMEOUT_MS, wanted->is_cancelled, &id));
    id[strcspn(id, "\r\n")] = '\0';
    const char *const export[] = {"export", "-o", archive, id, NULL};
    const char *const drop[] = {"rm", id, NULL};
    enum shoal_status status = run(export, FETCH_TIMEOUT_MS, wanted->is_cancelled, NULL);
    if (status == SHOAL_OK)
        status = run(drop, ASK_TIMEOUT_MS, NULL, NULL);
    else
        (void)run(drop, ASK_TIMEOUT_MS, NULL, NULL);
    base_free(id);
    return status;
}

static enum shoal_status extract(const struct wanted *wanted, const char *archive, const char *part)
{
    char *words[] = {(char *)"tar", (char *)"-xf", (char *)archive,
                     (char *)"-C",  (char *)part,  (char *)"--numeric-owner",
                     NULL};
    char *text;
    if (mkdir(part, 0755) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder %s", part);
    TRY(capture_run(words, FETCH_TIMEOUT_MS, wanted->is_cancelled, &text));
    base_free(text);
    return SHOAL_OK;
}

static enum shoal_status unpack(const struct wanted *wanted, const char *id, const char *root)
{
    char archive[PATH_BYTES], part[PATH_BYTES];
    if (snprintf(archive, sizeof(archive), "%s.tar", root) >= PATH_BYTES ||
        snprintf(part, sizeof(part), "%s.part", root) >= PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", root);
    enum shoal_status status = export_to(wanted, id, archive);
    if (status == SHOAL_OK)
        status = extract(wanted, archive, part);
    unlink(archive);
    if (status == SHOAL_OK && rename(part, root) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "naming the folder %s", root);
    return status;
}

/* Whoever has the lock may be busy for long, so this is no call that waits for it. */
static enum shoal_status lock(const struct wanted *wanted, int fd, const char *path)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "locking %s", path);
        if (wanted->is_cancelled != NULL && atomic_load(wanted->is_cancelled))
            return base_error(SHOAL_ERR_ABORTED, "the image %s was given up", wanted->name);
        base_sleep_ms(LOCK_POLL_MS);
    }
    return SHOAL_OK;
}

static enum shoal_status unpack_once(const struct wanted *wanted, const char *id, const char *root)
{
    char path[PATH_BYTES];
    if (access(root, F_OK) == 0)
        return SHOAL_OK;
    if (mkdir(wanted->folder, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder %s", wanted->folder);
    snprintf(path, sizeof(path), "%s/lock", wanted->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", path);
    enum shoal_status status = lock(wanted, fd, path);
    if (status == SHOAL_OK && access(root, F_OK) != 0)
        status = unpack(wanted, id, root);
    close(fd);
    return status;
}

/* ---- what it says about its start ---- */

/* Texts of a list, and behind them those of another. */
static enum shoal_status take_list(const json_t *list, const char *const *more, char ***out)
{
    size_t count = json_array_size(list), more_count = 0;
    while (more != NULL && more[more_count] != NULL)
        more_count++;
    if (count > LIST_MAX)
        return base_error(SHOAL_ERR_FORMAT, "the image has more than 1024 variables");
    TRY(BASE_NEW_ARRAY(out, count + more_count + 1, "an image"));
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        TRY(base_strdup(text != NULL ? text : "", "an image", &(*out)[i]));
    }
    for (size_t i = 0; i < more_count; i++)
        TRY(base_strdup(more[i], "an image", &(*out)[count + i]));
    return SHOAL_OK;
}

static enum shoal_status take_config(const json_t *image, const struct image *row,
                                     struct job_software *software)
{
    const json_t *config = json_object_get(image, "Config");
    const char *directory = json_string_value(json_object_get(config, "WorkingDir"));
    if (directory != NULL && *directory == '/')
        TRY(base_strdup(directory, "an image", &software->directory));
    TRY(take_list(json_object_get(config, "Entrypoint"), NULL, &software->entrypoint));
    return take_list(json_object_get(config, "Env"), row->variables, &software->environment);
}

enum shoal_status container_prepare(const char *folder, const char *name, const struct image *image,
                                    const atomic_bool *is_cancelled, struct job_software *software)
{
    const struct wanted wanted = {folder, name, is_cancelled};
    char id[ID_BYTES], root[PATH_BYTES];
    json_t *known;
    TRY(fetch(&wanted, &known));
    enum shoal_status status = id_of(known, id);
    if (status == SHOAL_OK && snprintf(root, sizeof(root), "%s/%s", folder, id) >= PATH_BYTES)
        status = base_error(SHOAL_ERR_ARGUMENT, "the path %s is too long", folder);
    if (status == SHOAL_OK)
        status = unpack_once(&wanted, id, root);
    if (status == SHOAL_OK)
        status = base_strdup(root, "an image", &software->root);
    if (status == SHOAL_OK)
        status = take_config(known, image, software);
    json_decref(known);
    return status;
}
