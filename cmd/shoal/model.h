/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h: the gradients of known models: what a backward pass makes, in which order, and when.
 *
 * The tables are the files of models/, which the build puts into this program; a path to a file of
 * the same form is read as well.
 */
#ifndef SHOAL_CMD_MODEL_H
#define SHOAL_CMD_MODEL_H

#include <stdint.h>

#include "shoal.h"

#define MODEL_NAME_BYTES 96

struct model_tensor {
    char name[MODEL_NAME_BYTES];
    uint64_t count; /* elements */
    double ready;   /* share of the backward pass that is over when its gradient is ready, to 1 */
};

struct model {
    char name[MODEL_NAME_BYTES];
    struct model_tensor *tensors; /* [tensor_count] as their gradients become ready */
    int tensor_count;
    uint64_t parameters; /* the tensors' elements together */
    uint64_t frozen;     /* parameters that have no gradient */
};

/* By name, or by path if it has a slash. SHOAL_ERR_ARGUMENT lists the names there are;
 * SHOAL_ERR_FORMAT names file and line. */
enum shoal_status model_read(const char *name, struct model *out);
/* The same, of text; `path` is for messages. */
enum shoal_status model_parse(const char *path, const char *text, struct model *out);
void model_release(struct model *model);

#endif
