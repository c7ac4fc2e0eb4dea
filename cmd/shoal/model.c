/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c: reads tables of gradients. A line is `model NAME`, `parameters NUMBER`, `frozen NUMBER`,
 * or a tensor: `NAME SHAPE WORK`, where the work of the forward pass with it stands for the time of
 * the backward pass until its gradient is ready. The parameters are the sum of all shapes; a table
 * where they are not is damaged.
 */
#include "model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model_table.h"
#include "model_tables.h"

#define LINE_BYTES      256
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
#define TENSORS_MAX     100000
#define COUNT_MAX       (UINT64_C(1) << 40)

/* "1024x4096": the product. */
static enum shoal_status parse_shape(const char *text, uint64_t *count)
{
    *count = 1;
    for (const char *at = text;; at++) {
        char *end = NULL;
        unsigned long long edge = at[0] >= '0' && at[0] <= '9' ? strtoull(at, &end, 10) : 0;
        if (edge == 0 || edge > COUNT_MAX || *count * edge > COUNT_MAX)
            return base_error(SHOAL_ERR_FORMAT, "expected a shape as 1024x4096, not '%s'", text);
        *count *= edge;
        at = end;
        if (*at == '\0')
            return SHOAL_OK;
        if (*at != 'x')
            return base_error(SHOAL_ERR_FORMAT, "expected a shape as 1024x4096, not '%s'", text);
    }
}

static enum shoal_status parse_count(const char *what, const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end != '\0' || errno != 0)
        return base_error(SHOAL_ERR_FORMAT, "expected a number of %s, not '%s'", what, text);
    return SHOAL_OK;
}

static enum shoal_status read_tensor(struct model *model, const char *name, const char *shape,
                                     const char *work)
{
    if (model->tensor_count == TENSORS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "more than %d tensors", TENSORS_MAX);
    struct model_tensor *tensor = &model->tensors[model->tensor_count++];
    uint64_t multiplications;
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    TRY(parse_shape(shape, &tensor->count));
    TRY(parse_count("multiplications", work, &multiplications));
    tensor->ready = (double)multiplications;
    return SHOAL_OK;
}

/* It goes to JSON and pictures as it is. */
static enum shoal_status parse_name(const char *text, struct model *model)
{
    if (text[strspn(text, NAME_CHARACTERS)] != '\0' || strlen(text) >= sizeof(model->name))
        return base_error(SHOAL_ERR_FORMAT,
                          "expected a name of letters, digits, '.', '_', '+' and '-', at most %d, "
                          "not '%s'",
                          MODEL_NAME_BYTES - 1, text);
    snprintf(model->name, sizeof(model->name), "%s", text);
    return SHOAL_OK;
}

static enum shoal_status read_line(struct model *model, char *line)
{
    char *rest = NULL, *words[4] = {NULL};
    int count = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word && count < 4;
         word = strtok_r(NULL, " \t\r", &rest))
        words[count++] = word;
    if (count == 0)
        return SHOAL_OK;
    if (count == 3)
        return read_tensor(model, words[0], words[1], words[2]);
    if (count == 2 && strcmp(words[0], "parameters") == 0)
        return parse_count("parameters", words[1], &model->parameters);
    if (count == 2 && strcmp(words[0], "frozen") == 0)
        return parse_count("parameters", words[1], &model->frozen);
    if (count != 2 || strcmp(words[0], "model") != 0)
        return base_error(SHOAL_ERR_FORMAT, "expected NAME SHAPE WORK, model NAME, parameters "
                                            "NUMBER or frozen NUMBER");
    return parse_name(words[1], model);
}

static enum shoal_status read_lines(const char *path, const char *text, struct model *model)
{
    for (int number = 1; *text; number++) {
        char line[LINE_BYTES];
        size_t bytes = strcspn(text, "\n");
        if (bytes >= sizeof(line))
            return base_error(SHOAL_ERR_FORMAT, "%s:%d: longer than %d characters", path, number,
                              LINE_BYTES - 1);
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        enum shoal_status status = read_line(model, line);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s:%d", path, number);
        text += bytes + (text[bytes] == '\n');
    }
    return SHOAL_OK;
}

/* Checks the sum, and turns work into the share of the pass that is over. */
static enum shoal_status finish(const char *path, struct model *model)
{
    uint64_t parameters = 0;
    double work = 0, done = 0;
    for (int i = 0; i < model->tensor_count; i++) {
        parameters += model->tensors[i].count;
        work += model->tensors[i].ready;
    }
    if (model->tensor_count == 0)
        return base_error(SHOAL_ERR_FORMAT, "%s: there is no tensor in it", path);
    if (parameters != model->parameters)
        return base_error(SHOAL_ERR_FORMAT,
                          "%s: its tensors have %" PRIu64 " parameters, not %" PRIu64, path,
                          parameters, model->parameters);
    for (int i = 0; i < model->tensor_count; i++) {
        done += model->tensors[i].ready;
        model->tensors[i].ready = work > 0 ? done / work : (i + 1.0) / model->tensor_count;
    }
    return SHOAL_OK;
}

enum shoal_status model_parse(const char *path, const char *text, struct model *out)
{
    struct model model = {0};
    TRY(BASE_NEW_ARRAY(&model.tensors, TENSORS_MAX, "a model's tensors"));
    enum shoal_status status = read_lines(path, text, &model);
    if (status == SHOAL_OK)
        status = finish(path, &model);
    if (status == SHOAL_OK)
        *out = model;
    else
        model_release(&model);
    return status;
}

enum shoal_status model_read(const char *name, struct model *out)
{
    char *text = NULL;
    TRY(model_table_read(name, model_tables, MODEL_TABLES_COUNT, &text));
    enum shoal_status status = model_parse(name, text, out);
    base_free(text);
    return status;
}

void model_release(struct model *model)
{
    base_free(model->tensors);
}
