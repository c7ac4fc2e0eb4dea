/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_tree.c: reads trees of modules. The first line is `model NAME`, perhaps with the root's own
 * numbers; every other line is a module: its dotted name, bytes of parameters, activations and
 * output, and ns forward and backward; behind that perhaps `shares NAME` and `device NUMBER`.
 * Modules come in the order in which they run, and what is in a module directly behind it.
 */
#include "model_tree.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model_table.h"
#include "model_trees.h"

#define NUMBERS   5
#define WORDS_MAX (1 + NUMBERS + 4)
#define EXPECTED                                                                                 \
    "expected NAME PARAMETERS ACTIVATIONS OUTPUT FORWARD BACKWARD, and perhaps shares NAME and " \
    "device NUMBER"

static enum shoal_status parse_number(const char *text, uint64_t maximum, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || *end != '\0' || errno != 0 || *out > maximum)
        return base_error(SHOAL_ERR_FORMAT, "expected a number of at most %llu, not '%s'",
                          (unsigned long long)maximum, text);
    return SHOAL_OK;
}

static enum shoal_status parse_numbers(char *const words[NUMBERS], struct shoal_plan_module *module)
{
    TRY(parse_number(words[0], UINT64_MAX, &module->parameter_bytes));
    TRY(parse_number(words[1], UINT64_MAX, &module->activation_bytes));
    TRY(parse_number(words[2], UINT64_MAX, &module->output_bytes));
    TRY(parse_number(words[3], UINT64_MAX, &module->forward_ns));
    return parse_number(words[4], UINT64_MAX, &module->backward_ns);
}

/* The module of that name before the last one; -1 if there is none. */
static int find(const struct model_tree *tree, const char *name)
{
    for (int i = tree->module_count - 2; i > 0; i--)
        if (strcmp(tree->modules[i].name, name) == 0)
            return i;
    return -1;
}

/* The last module lies in the one before it, or in one that that one lies in. */
static enum shoal_status find_parent(struct model_tree *tree)
{
    struct shoal_plan_module *module = &tree->modules[tree->module_count - 1];
    const char *dot = strrchr(module->name, '.');
    size_t bytes = dot ? (size_t)(dot - module->name) : 0;
    int at = tree->module_count - 2;
    for (; at > 0 && dot; at = tree->modules[at].parent)
        if (strlen(tree->modules[at].name) == bytes &&
            strncmp(tree->modules[at].name, module->name, bytes) == 0)
            break;
    if (dot && at <= 0)
        return base_error(SHOAL_ERR_FORMAT,
                          "there is no '%.*s' that '%s' could be in: modules stand directly behind "
                          "the one that they are in",
                          (int)bytes, module->name, module->name);
    module->parent = dot ? at : 0;
    return SHOAL_OK;
}

static enum shoal_status read_extra(struct model_tree *tree, const char *key, const char *value)
{
    struct shoal_plan_module *module = &tree->modules[tree->module_count - 1];
    uint64_t device;
    if (strcmp(key, "shares") == 0) {
        module->shares = find(tree, value);
        if (module->shares < 0)
            return base_error(SHOAL_ERR_FORMAT, "there is no module '%s' before this one", value);
        return SHOAL_OK;
    }
    if (strcmp(key, "device") != 0)
        return base_error(SHOAL_ERR_FORMAT, EXPECTED);
    TRY(parse_number(value, INT32_MAX, &device));
    module->device = (int)device;
    return SHOAL_OK;
}

static enum shoal_status read_model(struct model_tree *tree, char *const *words, int count)
{
    if ((count != 2 && count != 2 + NUMBERS) || strcmp(words[0], "model") != 0)
        return base_error(SHOAL_ERR_FORMAT, "expected model NAME first, perhaps with numbers");
    tree->name = tree->modules[0].name = words[1];
    return count == 2 ? SHOAL_OK : parse_numbers(words + 2, &tree->modules[0]);
}

static enum shoal_status read_line(struct model_tree *tree, char *line)
{
    char *rest = NULL, *words[WORDS_MAX + 1] = {NULL};
    int count = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word && count <= WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &rest))
        words[count++] = word;
    if (count == 0)
        return SHOAL_OK;
    struct shoal_plan_module *module = &tree->modules[tree->module_count++];
    *module = (struct shoal_plan_module)SHOAL_PLAN_MODULE_INIT;
    if (tree->module_count == 1)
        return read_model(tree, words, count);
    if (count < 1 + NUMBERS || count > WORDS_MAX || count % 2 != 0)
        return base_error(SHOAL_ERR_FORMAT, EXPECTED);
    module->name = words[0];
    TRY(find_parent(tree));
    TRY(parse_numbers(words + 1, module));
    for (int i = 1 + NUMBERS; i < count; i += 2)
        TRY(read_extra(tree, words[i], words[i + 1]));
    return SHOAL_OK;
}

static enum shoal_status read_lines(const char *path, struct model_tree *tree)
{
    int number = 1;
    for (char *line = tree->text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        enum shoal_status status = read_line(tree, line);
        if (status != SHOAL_OK)
            return base_error_context(status, "%s:%d", path, number);
    }
    if (tree->module_count == 0)
        return base_error(SHOAL_ERR_FORMAT, "%s: there is no model in it", path);
    return SHOAL_OK;
}

enum shoal_status model_tree_parse(const char *path, char *text, struct model_tree *out)
{
    struct model_tree tree = {.text = text};
    size_t lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    enum shoal_status status = BASE_NEW_ARRAY(&tree.modules, lines, "a model's modules");
    if (status == SHOAL_OK)
        status = read_lines(path, &tree);
    if (status == SHOAL_OK)
        *out = tree;
    else
        model_tree_release(&tree);
    return status;
}

enum shoal_status model_tree_read(const char *name, struct model_tree *out)
{
    char *text = NULL;
    TRY(model_table_read(name, model_trees, MODEL_TREES_COUNT, &text));
    return model_tree_parse(name, text, out);
}

void model_tree_release(struct model_tree *tree)
{
    base_free(tree->modules);
    base_free(tree->text);
}
