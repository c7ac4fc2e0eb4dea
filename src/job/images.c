/* SPDX-License-Identifier: Apache-2.0 */
/*
 * images.c: images.conf, and what a Python says of itself. Containers: container.c.
 *
 * The public service has one text for every image that can't be had; clients know it, so it stands
 * in front of ours.
 */
#include "job/images.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/capture.h"
#include "job/container.h"
#include "job/images_state.h"
#include "job/packages.h"
#include "job/rows.h"

#define PYTHON_TIMEOUT_MS 30000

static const char default_rows[] =
    "python*  python\n*/python:*  python\n"
    "*pytorch*train*  python\n*tensorflow*train*  python\n*mxnet*train*  python\n"
    "*huggingface*train*  python\n*smdistributed-modelparallel*  python\n"
    "*sagemaker-pytorch*  python\n*sagemaker-tensorflow*  python\n"
    "*sagemaker-scikit-learn*  python\n*sagemaker-xgboost*  python\n"
    "*sagemaker-base-python*  python\n*sagemaker-distribution*  python\n"
    "*  container\n";

/* What a Python says of itself, by the names of struct job_software. */
static const char python_question[] =
    "import importlib.util, json, os, site, sys\n"
    "def has(name):\n"
    "    return importlib.util.find_spec(name) is not None\n"
    "print(json.dumps({\n"
    "    'python': sys.executable, 'prefix': sys.prefix, 'base_prefix': sys.base_prefix,\n"
    "    'version': '%d.%d' % sys.version_info[:2],\n"
    "    'libraries': ':'.join(filter(os.path.isdir, site.getsitepackages())),\n"
    "    'has_shoal': has('shoal'), 'has_smdistributed': has('smdistributed')}))\n";

struct job_images {
    struct rows *rows;
    struct image *images; /* of each row */
    char *folder;
};

/* ---- rows ---- */

static bool is_variable(const char *word)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word || (*word >= '0' && *word <= '9'))
        return false;
    for (const char *at = word; at < equals; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_' ||
              (*at >= '0' && *at <= '9')))
            return false;
    return true;
}

/* "python=PATH": whether the word is of this kind; *value: what stands behind '=', or NULL. */
static bool is_kind(const char *word, const char *kind, const char **value)
{
    size_t length = strlen(kind);
    if (strncmp(word, kind, length) != 0 || (word[length] != '=' && word[length] != '\0'))
        return false;
    *value = word[length] == '=' ? word + length + 1 : NULL;
    return true;
}

static enum shoal_status read_kind(const struct rows *rows, const struct rows_row *row,
                                   struct image *image)
{
    static const char *const kinds[] = {[JOB_IMAGE_PYTHON] = "python",
                                        [JOB_IMAGE_ROOT] = "root",
                                        [JOB_IMAGE_CONTAINER] = "container"};
    const char *word = row->word_count > 0 ? row->words[0] : "";
    for (int i = 0; i < (int)(sizeof(kinds) / sizeof(kinds[0])); i++) {
        if (!is_kind(word, kinds[i], &image->value))
            continue;
        image->kind = (enum job_image_kind)i;
        if (i == JOB_IMAGE_ROOT && (image->value == NULL || *image->value != '/'))
            return rows_wrong(rows, row, "root=FOLDER wants an absolute path");
        if (image->value != NULL && *image->value == '\0')
            return rows_wrong(rows, row, "'%s' lacks a value", word);
        return SHOAL_OK;
    }
    return rows_wrong(rows, row, "behind the pattern stands python, root=FOLDER or container");
}

static enum shoal_status read_rows(struct job_images *images)
{
    size_t count = rows_count(images->rows);
    TRY(BASE_NEW_ARRAY(&images->images, count + 1, "images"));
    for (size_t i = 0; i < count; i++) {
        const struct rows_row *row = rows_at(images->rows, i);
        TRY(read_kind(images->rows, row, &images->images[i]));
        images->images[i].variables = row->words + 1;
        for (size_t k = 1; k < row->word_count; k++)
            if (!is_variable(row->words[k]))
                return rows_wrong(images->rows, row, "'%.60s' is not NAME=VALUE", row->words[k]);
    }
    return SHOAL_OK;
}

enum shoal_status job_images_load(const char *path, const char *folder, struct job_images **out)
{
    struct job_images *images;
    TRY(BASE_NEW(&images, "images"));
    enum shoal_status status = rows_load(path, default_rows, &images->rows);
    if (status == SHOAL_OK)
        status = base_strdup(folder, "images", &images->folder);
    if (status == SHOAL_OK)
        status = read_rows(images);
    if (status != SHOAL_OK) {
        job_images_free(images);
        return status;
    }
    *out = images;
    return SHOAL_OK;
}

void job_images_free(struct job_images *images)
{
    if (images == NULL)
        return;
    rows_free(images->rows);
    base_free(images->images);
    base_free(images->folder);
    base_free(images);
}

/* ---- which it is ---- */

#define NOT_HERE                                                               \
    "Cannot pull algorithm container. Either the image does not exist or its " \
    "permissions are incorrect"

static enum shoal_status find(const struct job_images *images, const char *name,
                              const struct image **out)
{
    const struct rows_row *row = rows_find(images->rows, name);
    if (row == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, NOT_HERE ": no row of %s matches '%.200s'",
                          rows_source(images->rows), name);
    *out = &images->images[row - rows_at(images->rows, 0)];
    return SHOAL_OK;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static enum shoal_status engine_check(const char *name)
{
    const char *program = container_program();
    char words[BASE_ERROR_TEXT_BYTES];
    if (program != NULL && container_check() == SHOAL_OK)
        return SHOAL_OK;
    if (program == NULL)
        snprintf(words, sizeof(words), "install podman to fetch it");
    else
        snprintf(words, sizeof(words), "see to it that %s, which is to fetch it, answers: %.300s",
                 program, base_error_text());
    return base_error(SHOAL_ERR_ARGUMENT,
                      NOT_HERE ": '%.200s' is no framework image that this machine's Python stands "
                               "for; give it a row in images.conf (python or root=FOLDER), or %s",
                      name, words);
}

enum shoal_status job_images_check(const struct job_images *images, const char *name)
{
    const struct image *image;
    TRY(find(images, name, &image));
    if (image->kind == JOB_IMAGE_ROOT && !is_folder(image->value))
        return base_error(SHOAL_ERR_ARGUMENT, NOT_HERE ": there is no folder %s, which %s names",
                          image->value, rows_source(images->rows));
    if (image->kind == JOB_IMAGE_CONTAINER)
        return engine_check(name);
    if (image->kind == JOB_IMAGE_PYTHON && image->value != NULL && access(image->value, X_OK) != 0)
        return base_error(SHOAL_ERR_ARGUMENT, NOT_HERE ": %s, which %s names, can't be executed",
                          image->value, rows_source(images->rows));
    return SHOAL_OK;
}

/* ---- a Python ---- */

static enum shoal_status take_text(const json_t *answer, const char *name, char **out)
{
    const char *text = json_string_value(json_object_get(answer, name));
    if (text == NULL)
        return base_error(SHOAL_ERR_FORMAT, "a Python doesn't say its %s", name);
    return base_strdup(text, "an image", out);
}

static enum shoal_status take_answer(const json_t *answer, struct job_software *software)
{
    TRY(take_text(answer, "python", &software->python));
    TRY(take_text(answer, "prefix", &software->prefix));
    TRY(take_text(answer, "base_prefix", &software->base_prefix));
    TRY(take_text(answer, "version", &software->version));
    TRY(take_text(answer, "libraries", &software->libraries));
    software->has_shoal = json_is_true(json_object_get(answer, "has_shoal"));
    software->has_smdistributed = json_is_true(json_object_get(answer, "has_smdistributed"));
    return SHOAL_OK;
}

static enum shoal_status ask_python(const char *program, const atomic_bool *is_cancelled,
                                    struct job_software *software)
{
    char path[PACKAGES_PATH_BYTES], *text;
    if (program == NULL) {
        packages_python(path, sizeof(path));
        program = path;
    }
    char *words[] = {(char *)program, (char *)"-c", (char *)python_question, NULL};
    TRY(capture_run(words, PYTHON_TIMEOUT_MS, is_cancelled, &text));
    json_t *answer = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    base_free(text);
    enum shoal_status status = take_answer(answer, software);
    json_decref(answer);
    if (status != SHOAL_OK)
        return base_error_context(status, "%s", program);
    return SHOAL_OK;
}

/* ---- ready ---- */

static enum shoal_status list_copy(const char *const *list, char ***out)
{
    size_t count = 0;
    while (list[count] != NULL)
        count++;
    TRY(BASE_NEW_ARRAY(out, count + 1, "an image"));
    for (size_t i = 0; i < count; i++)
        TRY(base_strdup(list[i], "an image", &(*out)[i]));
    return SHOAL_OK;
}

static enum shoal_status prepare(struct job_images *images, const struct image *image,
                                 const char *name, const atomic_bool *is_cancelled,
                                 struct job_software *software)
{
    static const char *const none[] = {NULL};
    software->kind = image->kind;
    if (image->kind == JOB_IMAGE_CONTAINER)
        return container_prepare(images->folder, image->value != NULL ? image->value : name, image,
                                 is_cancelled, software);
    TRY(list_copy(image->variables, &software->environment));
    TRY(list_copy(none, &software->entrypoint));
    return image->kind == JOB_IMAGE_ROOT ? base_strdup(image->value, "an image", &software->root)
                                         : ask_python(image->value, is_cancelled, software);
}

enum shoal_status job_images_prepare(struct job_images *images, const char *name,
                                     const atomic_bool *is_cancelled, struct job_software **out)
{
    const struct image *image;
    struct job_software *software;
    TRY(job_images_check(images, name));
    TRY(find(images, name, &image));
    TRY(BASE_NEW(&software, "an image"));
    enum shoal_status status = prepare(images, image, name, is_cancelled, software);
    if (status != SHOAL_OK) {
        bool not_fetched = image->kind == JOB_IMAGE_CONTAINER && status == SHOAL_ERR_SYSTEM;
        job_software_free(software);
        return base_error_context(not_fetched ? SHOAL_ERR_ARGUMENT : status, NOT_HERE);
    }
    *out = software;
    return SHOAL_OK;
}

static void list_free(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        base_free(list[i]);
    base_free(list);
}

void job_software_free(struct job_software *software)
{
    if (software == NULL)
        return;
    list_free(software->entrypoint);
    list_free(software->environment);
    char *const texts[] = {software->root,     software->directory,   software->python,
                           software->prefix,   software->base_prefix, software->version,
                           software->libraries};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        base_free(texts[i]);
    base_free(software);
}
