/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_trees.c: sums as expressions, each stored once.
 *
 * A node is a reduce over operand nodes, in order; the first `size` nodes are the ranks' inputs. A
 * hash table finds an equal node, so equality of sums, with their order, is equality of numbers.
 * Each node keeps the set of ranks in it: a reduce over sets that meet would count an input twice.
 */
#include "coll/verify.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

struct node {
    uint32_t first, count; /* operands; count 0: an input */
    uint32_t rank_count;   /* inputs in it */
    bool final;
};

struct trees {
    int size, words;
    struct node *nodes;
    uint64_t *ranks; /* [words] per node */
    uint32_t node_count, node_capacity;
    uint32_t *operands;
    uint32_t operand_count, operand_capacity;
    uint32_t *table; /* node + 1 by hash; 0: empty */
    uint32_t table_size;
};

static enum shoal_status resize(void **array, size_t item_bytes, uint32_t count, uint32_t larger)
{
    void *fresh;
    TRY(base_alloc_array(larger, item_bytes, "the verifier's trees", &fresh));
    if (count)
        memcpy(fresh, *array, item_bytes * count);
    base_free(*array);
    *array = fresh;
    return SHOAL_OK;
}

static enum shoal_status reserve_node(struct trees *trees)
{
    if (trees->node_count < trees->node_capacity)
        return SHOAL_OK;
    uint32_t count = trees->node_count, larger = count ? 2 * count : (uint32_t)trees->size + 64;
    TRY(resize((void **)&trees->nodes, sizeof(*trees->nodes), count, larger));
    TRY(resize((void **)&trees->ranks, sizeof(uint64_t) * (size_t)trees->words, count, larger));
    trees->node_capacity = larger;
    return SHOAL_OK;
}

static enum shoal_status reserve_operands(struct trees *trees, uint32_t count)
{
    uint32_t larger = trees->operand_capacity ? trees->operand_capacity : 256;
    while (larger - trees->operand_count < count)
        larger *= 2;
    if (larger == trees->operand_capacity)
        return SHOAL_OK;
    TRY(resize((void **)&trees->operands, sizeof(uint32_t), trees->operand_count, larger));
    trees->operand_capacity = larger;
    return SHOAL_OK;
}

static uint32_t hash_of(const uint32_t *operands, uint32_t count, bool final)
{
    uint32_t hash = 2166136261u + final;
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ operands[i]) * 16777619u;
    return hash ^ hash >> 15;
}

/* The slot of an equal node, or the empty one where it belongs. */
static uint32_t slot_of(const struct trees *trees, const uint32_t *operands, uint32_t count,
                        bool final)
{
    uint32_t slot = hash_of(operands, count, final) & (trees->table_size - 1);
    for (; trees->table[slot]; slot = (slot + 1) & (trees->table_size - 1)) {
        const struct node *node = &trees->nodes[trees->table[slot] - 1];
        if (node->count == count && node->final == final &&
            memcmp(&trees->operands[node->first], operands, count * sizeof(uint32_t)) == 0)
            return slot;
    }
    return slot;
}

static enum shoal_status enlarge_table(struct trees *trees)
{
    uint32_t size = trees->table_size ? trees->table_size * 2 : 256;
    base_free(trees->table);
    trees->table = NULL;
    TRY(BASE_NEW_ARRAY(&trees->table, size, "the verifier's trees"));
    trees->table_size = size;
    for (uint32_t i = (uint32_t)trees->size; i < trees->node_count; i++) {
        const struct node *node = &trees->nodes[i];
        trees->table[slot_of(trees, &trees->operands[node->first], node->count, node->final)] =
            i + 1;
    }
    return SHOAL_OK;
}

static enum shoal_status add_inputs(struct trees *trees)
{
    TRY(reserve_node(trees));
    for (int rank = 0; rank < trees->size; rank++) {
        trees->nodes[rank] = (struct node){.rank_count = 1};
        trees->ranks[rank * trees->words + rank / 64] = UINT64_C(1) << (rank % 64);
    }
    trees->node_count = (uint32_t)trees->size;
    return enlarge_table(trees);
}

enum shoal_status coll_trees_create(int size, struct trees **out)
{
    struct trees *trees;
    TRY(BASE_NEW(&trees, "the verifier's trees"));
    trees->size = size;
    trees->words = (size + 63) / 64;
    enum shoal_status status = add_inputs(trees);
    if (status != SHOAL_OK) {
        coll_trees_free(trees);
        return status;
    }
    *out = trees;
    return SHOAL_OK;
}

void coll_trees_free(struct trees *trees)
{
    if (!trees)
        return;
    base_free(trees->nodes);
    base_free(trees->ranks);
    base_free(trees->operands);
    base_free(trees->table);
    base_free(trees);
}

enum shoal_status coll_trees_readable(uint32_t tree)
{
    if (tree == TREE_UNSET)
        return base_error(SHOAL_ERR_INTERNAL, "it reads scratch that was never written");
    if (tree == TREE_OLD)
        return base_error(SHOAL_ERR_INTERNAL, "it reads what the output held before");
    return SHOAL_OK;
}

/* Adds the operand's ranks to the node's. */
static enum shoal_status unite(struct trees *trees, uint32_t node, uint32_t operand)
{
    if (trees->nodes[operand].final)
        return base_error(SHOAL_ERR_INTERNAL, "it reduces a sum that is already final");
    uint64_t *set = &trees->ranks[node * (uint32_t)trees->words];
    const uint64_t *added = &trees->ranks[operand * (uint32_t)trees->words];
    for (int word = 0; word < trees->words; word++) {
        if (set[word] & added[word]) {
            char text[256];
            coll_trees_print(trees, operand, text, sizeof(text));
            return base_error(SHOAL_ERR_INTERNAL,
                              "it adds the input of rank %d a second time, with %s",
                              64 * word + __builtin_ctzll(set[word] & added[word]), text);
        }
        set[word] |= added[word];
    }
    trees->nodes[node].rank_count += trees->nodes[operand].rank_count;
    return SHOAL_OK;
}

static enum shoal_status add_node(struct trees *trees, const uint32_t *operands, uint32_t count,
                                  bool final)
{
    TRY(reserve_node(trees));
    TRY(reserve_operands(trees, count));
    uint32_t fresh = trees->node_count;
    trees->nodes[fresh] =
        (struct node){.first = trees->operand_count, .count = count, .final = final};
    memset(&trees->ranks[fresh * (uint32_t)trees->words], 0,
           sizeof(uint64_t) * (size_t)trees->words);
    for (uint32_t i = 0; i < count; i++)
        TRY(unite(trees, fresh, operands[i]));
    memcpy(&trees->operands[trees->operand_count], operands, count * sizeof(uint32_t));
    trees->operand_count += count;
    trees->node_count++;
    return SHOAL_OK;
}

enum shoal_status coll_trees_reduce(struct trees *trees, const uint32_t *operands, uint32_t count,
                                    bool final, uint32_t *out)
{
    uint32_t slot = slot_of(trees, operands, count, final);
    if (!trees->table[slot]) {
        TRY(add_node(trees, operands, count, final));
        trees->table[slot] = trees->node_count;
        *out = trees->node_count - 1;
        if (trees->node_count * 2 > trees->table_size)
            TRY(enlarge_table(trees));
        return SHOAL_OK;
    }
    *out = trees->table[slot] - 1;
    return SHOAL_OK;
}

bool coll_trees_is_complete(const struct trees *trees, uint32_t tree)
{
    return tree < trees->node_count && trees->nodes[tree].final &&
           trees->nodes[tree].rank_count == (uint32_t)trees->size;
}

bool coll_trees_is_one_reduce(const struct trees *trees, uint32_t tree)
{
    const struct node *node = &trees->nodes[tree];
    if (node->count != (uint32_t)trees->size)
        return false;
    for (uint32_t i = 0; i < node->count; i++)
        if (trees->operands[node->first + i] != i)
            return false;
    return true;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* The first operand goes on with the hash, as the sum goes on with its value. */
static uint64_t add_order(const struct trees *trees, uint32_t tree, uint64_t hash)
{
    const struct node *node = &trees->nodes[tree];
    if (node->count == 0)
        return mix(hash, tree);
    hash = add_order(trees, trees->operands[node->first], hash);
    for (uint32_t i = 1; i < node->count; i++)
        hash = mix(hash, coll_trees_order(trees, trees->operands[node->first + i]));
    return hash;
}

uint64_t coll_trees_order(const struct trees *trees, uint32_t tree)
{
    return add_order(trees, tree, 1);
}

/* ---- text ---------------------------------------------------------------------------------- */

struct printer {
    const struct trees *trees;
    char *text;
    size_t used, bytes;
};

static void print(struct printer *printer, const char *piece)
{
    if (printer->used >= printer->bytes)
        return;
    int written =
        snprintf(printer->text + printer->used, printer->bytes - printer->used, "%s", piece);
    printer->used += (size_t)written;
}

static void print_tree(struct printer *printer, uint32_t tree)
{
    const struct node *node = &printer->trees->nodes[tree];
    if (printer->used >= printer->bytes)
        return;
    if (node->count == 0) {
        char rank[16];
        snprintf(rank, sizeof(rank), "%u", tree);
        print(printer, rank);
        return;
    }
    for (uint32_t i = 0; i < node->count; i++) {
        print(printer, i ? " " : "(");
        print_tree(printer, printer->trees->operands[node->first + i]);
    }
    print(printer, node->final ? ")/" : ")");
}

void coll_trees_print(const struct trees *trees, uint32_t tree, char *text, size_t text_bytes)
{
    struct printer printer = {trees, text, 0, text_bytes};
    text[0] = '\0';
    if (tree == TREE_OLD || tree == TREE_UNSET)
        print(&printer, tree == TREE_OLD ? "old" : "unset");
    else
        print_tree(&printer, tree);
}
