/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.h: the verifier's parts. coll_verify in verify.c calls them in this order:
 *   memory   where each rank's buffers lie and what they hold at the start;
 *   form     every step lies within its buffers, waits only for earlier ones, writes no input;
 *   race     steps that may run at once don't disturb each other;
 *   run      messages match; the run of all ranks ends, and leaves values in memory;
 *   result   the values are what the operation promises.
 */
#ifndef SHOAL_COLL_VERIFY_H
#define SHOAL_COLL_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "coll/steps.h"

/* ---- trees: the sums, as expressions over ranks ------------------------------------------------
 */

/* A tree says of which ranks' inputs a value is the sum, and in which order; equal ones have equal
 * numbers. 0 to size-1 are the ranks' inputs themselves. */
struct trees;
#define TREE_OLD   (UINT32_MAX - 1) /* what the output held before */
#define TREE_UNSET UINT32_MAX       /* scratch that nobody wrote */

enum shoal_status coll_trees_create(int size, struct trees **out);
/* NULL is allowed. */
void coll_trees_free(struct trees *trees);
/* SHOAL_ERR_INTERNAL for TREE_OLD and TREE_UNSET, which no step may read. */
enum shoal_status coll_trees_readable(uint32_t tree);
/* operands[0] op operands[1] op …; with `final`, divided after it. One operand: the division alone.
 * SHOAL_ERR_INTERNAL if an input would be in it twice, or if an operand is already divided. */
enum shoal_status coll_trees_reduce(struct trees *trees, const uint32_t *operands, uint32_t count,
                                    bool final, uint32_t *out);
/* Whether every rank's input is in it (each once, by construction), divided at the end. */
bool coll_trees_is_complete(const struct trees *trees, uint32_t tree);
/* Whether all inputs meet in one reduce, in rank order. */
bool coll_trees_is_one_reduce(const struct trees *trees, uint32_t tree);
/* Hash of the order of the sum: that of ((0 1) 2) is that of (0 1 2), but not of (0 (1 2)). */
uint64_t coll_trees_order(const struct trees *trees, uint32_t tree);
/* "((0 1) (2 3))/", cut where the text is full. */
void coll_trees_print(const struct trees *trees, uint32_t tree, char *text, size_t text_bytes);

/* ---- memory ------------------------------------------------------------------------------------
 */

struct cell {
    uint32_t tree;
    uint32_t index; /* element of the input; of TREE_OLD: of the output */
};

/* One rank's buffers in one array: input and output side by side or, in place, over each other,
 * then both kinds of scratch. */
struct memory {
    uint64_t base[BUFFER_COUNT];   /* of each enum schedule_buffer in cells */
    uint64_t extent[BUFFER_COUNT]; /* elements that the operation may touch */
    uint64_t cell_count;
    struct cell *cells;
    bool aliased;
};

enum shoal_status coll_memory_init(const struct coll_shape *shape, const struct schedule *schedule,
                                   struct memory *memory);
void coll_memory_release(struct memory *memory);
/* What the cells of input and output held at the start; scratch starts at base[BUFFER_SCRATCH]. */
struct cell coll_memory_initial(const struct coll_shape *shape, const struct memory *memory,
                                uint64_t cell);

/* ---- the verifier ------------------------------------------------------------------------------
 */

struct verifier {
    int size;
    const struct coll_shape *shapes;
    struct steps steps;
    struct memory *memories; /* [size] */
    struct trees *trees;
    uint32_t *depth; /* [steps] messages in the longest chain that ends with the step */
    uint64_t *known; /* barrier: words per step, the ranks that are known to be there */
    int known_words;
};

enum shoal_status coll_verify_form(const struct verifier *verifier, int rank);
enum shoal_status coll_verify_race(const struct verifier *verifier, int rank);
enum shoal_status coll_verify_run(struct verifier *verifier);
enum shoal_status coll_verify_result(const struct verifier *verifier, struct coll_report *report);

#endif
