/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: a model's modules, checked and put in the order in which they run.
 *
 * Modules that share parameters have to be on one device, so they are one node of the tree, which
 * stands where the first of them stands, does the work of all of them and holds what they hold.
 * A node's own work comes before that of the nodes in it; nodes are numbered in this order, so a
 * subtree is a range of numbers, and a model is a row of nodes.
 */
#ifndef SHOAL_PLAN_TREE_H
#define SHOAL_PLAN_TREE_H

#include <stdint.h>

#include "shoal.h"

#define PLAN_MODULES_MAX  (1 << 20)
#define PLAN_DEVICES_MAX  1024
#define PLAN_QUANTITY_MAX (UINT64_C(1) << 50) /* bytes or ns of a whole model */

struct plan_node { /* quantities are its own, without the nodes in it */
    int module;    /* the first of its modules */
    int end;       /* its subtree are the nodes from its own number to before this one */
    int device;    /* placed by hand; -1: not */
    uint64_t parameter_bytes, activation_bytes, forward_ns, backward_ns;
};

struct plan_tree {
    int node_count;
    struct plan_node *nodes; /* [node_count] */
    int *node_of;            /* [module_count] */
    int *order;              /* [module_count] modules as they run, each where it stands itself */
};

/* Checks the options' modules and where they are placed. SHOAL_ERR_ARGUMENT names the module;
 * SHOAL_ERR_LIMIT if there is too much of something. Takes nothing of the options' memory; release
 * in any case. */
enum shoal_status plan_tree_init(const struct shoal_plan_options *options, struct plan_tree *tree);
void plan_tree_release(struct plan_tree *tree);

#endif
