/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_tree.h: the trees of modules of known models, with what each module costs.
 *
 * The tables are the files of models/trees/, which the build puts into this program; a path to a
 * file of the same form is read as well. docs/plan.md has the form.
 */
#ifndef SHOAL_CMD_MODEL_TREE_H
#define SHOAL_CMD_MODEL_TREE_H

#include "shoal.h"

struct model_tree {
    const char *name;
    struct shoal_plan_module *modules; /* [module_count]; the root is called as the model */
    int module_count;
    char *text; /* where the names lie */
};

/* By name, or by path if it has a slash. SHOAL_ERR_ARGUMENT lists the names there are;
 * SHOAL_ERR_FORMAT names file and line. */
enum shoal_status model_tree_read(const char *name, struct model_tree *out);
/* The same, of text, which is changed and becomes the tree's, or is freed; `path` is for messages.
 */
enum shoal_status model_tree_parse(const char *path, char *text, struct model_tree *out);
void model_tree_release(struct model_tree *tree);

#endif
