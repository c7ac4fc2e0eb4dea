/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide.c: reductions of 16-bit floats in which some arrays hold partial sums in f32.
 *
 * Block by block, so that what is widened stays in the nearest cache: each input in turn is
 * widened, unless it is f32 already, and added to the sum by the f32 loop; the sum is divided, and
 * rounded if the output has 16 bits. These are the steps of a reduction of 16-bit floats, in its
 * order, so a sum that is made in several calls has the bits of its one tree, rounded once.
 */
#include "base/status.h"
#include "kernel/form.h"

#define BLOCK_COUNT 1024

/* One block of a reduction: `count` elements from `first` on. */
struct block {
    const struct kernel_reduce *how;
    size_t first, count;
};

static bool is_wide(const struct kernel_reduce *how, int input)
{
    return how->wide_inputs != NULL && how->wide_inputs[input];
}

/* Bytes from an array's begin to the block's. */
static size_t offset_of(const struct block *block, bool wide)
{
    return block->first * (wide ? sizeof(float) : kernel_dtype_bytes(block->how->dtype));
}

/* The block of an input in f32: where it lies, or in `room`. */
static const void *widen(const struct block *block, const void *const *inputs, int input,
                         float *room)
{
    bool wide = is_wide(block->how, input);
    const char *from = (const char *)inputs[input] + offset_of(block, wide);
    if (wide) {
        return from;
    }
    kernel_to_f32(block->how->dtype, room, from, block->count);
    return room;
}

static void reduce_block(const struct block *block, void *out, const void *const *inputs,
                         int input_count)
{
    float sums[BLOCK_COUNT], room[BLOCK_COUNT];
    const struct kernel_reduce *how = block->how;
    struct kernel_reduce add = {.dtype = SHOAL_F32, .op = how->op};
    const void *pair[2] = {widen(block, inputs, 0, sums), NULL};
    for (int k = 1; k < input_count; k++) {
        pair[1] = widen(block, inputs, k, room);
        kernel_reduce(&add, sums, pair, 2, block->count);
        pair[0] = sums;
    }
    if (how->op == SHOAL_AVG && how->divisor > 1) {
        kernel_divide(SHOAL_F32, sums, pair[0], how->divisor, block->count);
        pair[0] = sums;
    }
    char *to = (char *)out + offset_of(block, how->wide_out);
    if (how->wide_out) {
        kernel_copy(to, pair[0], block->count * sizeof(float), false);
    } else {
        kernel_from_f32(how->dtype, to, pair[0], block->count);
    }
}

void kernel_wide_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                        int input_count, size_t count)
{
    BASE_ASSERT(kernel_dtype_is_half(how->dtype));
    for (size_t first = 0; first < count; first += BLOCK_COUNT) {
        size_t left = count - first;
        struct block block = {how, first, left < BLOCK_COUNT ? left : BLOCK_COUNT};
        reduce_block(&block, out, inputs, input_count);
    }
}
