/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.c: lowers a (dtype, op) to a vector form's loop over lanes.
 *
 * Lowering keeps the bits: sums and products of signed integers are those of unsigned ones, complex
 * sums are sums of their parts, bool is u8 with the logical ops, PREMUL_SUM is SUM, and AVG of
 * floats is SUM with a division at the end. AVG of integers has no vector division: the sum is made
 * block by block and each block divided by the reference while it is in the nearest cache.
 */
#include <string.h>

#include "base/status.h"
#include "kernel/form.h"

/* Bytes of a block of integer AVG: sum and inputs stay in the nearest cache. */
#define AVG_BLOCK_BYTES 4096

/* Below this the fence after the stores costs more than they save. */
#define STREAM_LEAST_BYTES 4096

struct lowering {
    enum kernel_lane lane;
    enum kernel_lane order_lane; /* for min and max */
    bool divides;                /* its sum loop can */
    bool is_complex;             /* each element two lanes */
};

static const struct lowering lowerings[SHOAL_DTYPE_COUNT] = {
    [SHOAL_F64] = {LANE_F64, LANE_F64, .divides = true},
    [SHOAL_F32] = {LANE_F32, LANE_F32, .divides = true},
    [SHOAL_F16] = {LANE_F16, LANE_F16, .divides = true},
    [SHOAL_BF16] = {LANE_BF16, LANE_BF16, .divides = true},
    [SHOAL_I8] = {LANE_U8, LANE_I8, .divides = false},
    [SHOAL_U8] = {LANE_U8, LANE_U8, .divides = false},
    [SHOAL_I16] = {LANE_U16, LANE_I16, .divides = false},
    [SHOAL_I32] = {LANE_U32, LANE_I32, .divides = false},
    [SHOAL_I64] = {LANE_U64, LANE_I64, .divides = false},
    [SHOAL_U16] = {LANE_U16, LANE_U16, .divides = false},
    [SHOAL_U32] = {LANE_U32, LANE_U32, .divides = false},
    [SHOAL_U64] = {LANE_U64, LANE_U64, .divides = false},
    [SHOAL_BOOL] = {LANE_U8, LANE_U8, .divides = false},
    [SHOAL_COMPLEX64] = {LANE_F32, LANE_F32, .divides = true, .is_complex = true},
    [SHOAL_COMPLEX128] = {LANE_F64, LANE_F64, .divides = true, .is_complex = true},
};

static const enum kernel_combine combines[SHOAL_OP_COUNT] = {
    [SHOAL_SUM] = COMBINE_SUM, [SHOAL_AVG] = COMBINE_SUM,   [SHOAL_PROD] = COMBINE_PROD,
    [SHOAL_MIN] = COMBINE_MIN, [SHOAL_MAX] = COMBINE_MAX,   [SHOAL_BAND] = COMBINE_BAND,
    [SHOAL_BOR] = COMBINE_BOR, [SHOAL_BXOR] = COMBINE_BXOR, [SHOAL_LAND] = COMBINE_LAND,
    [SHOAL_LOR] = COMBINE_LOR, [SHOAL_LXOR] = COMBINE_LXOR, [SHOAL_PREMUL_SUM] = COMBINE_SUM,
};

static const enum kernel_combine bool_combines[SHOAL_OP_COUNT] = {
    [SHOAL_SUM] = COMBINE_LOR,   [SHOAL_PROD] = COMBINE_LAND, [SHOAL_MIN] = COMBINE_LAND,
    [SHOAL_MAX] = COMBINE_LOR,   [SHOAL_BAND] = COMBINE_LAND, [SHOAL_BOR] = COMBINE_LOR,
    [SHOAL_BXOR] = COMBINE_LXOR, [SHOAL_LAND] = COMBINE_LAND, [SHOAL_LOR] = COMBINE_LOR,
    [SHOAL_LXOR] = COMBINE_LXOR,
};

/* Streaming saves reading the output's lines before they are overwritten; an output that is an
 * input has been read. */
static bool streaming_pays(const void *out, const void *const *inputs, int input_count,
                           size_t bytes)
{
    for (int k = 0; k < input_count; k++) {
        if (inputs[k] == out) {
            return false;
        }
    }
    return bytes >= STREAM_LEAST_BYTES;
}

static void divide_in_blocks(void (*sum)(const struct kernel_pass *), struct kernel_pass *pass,
                             const struct kernel_reduce *how)
{
    size_t end = pass->end;
    char *also = pass->also;
    pass->stream = false; /* each block is read again at once */
    pass->also = NULL;
    while (pass->begin < end) {
        size_t left = end - pass->begin;
        size_t block_bytes = left < AVG_BLOCK_BYTES ? left : AVG_BLOCK_BYTES;
        pass->end = pass->begin + block_bytes;
        sum(pass);
        char *block = pass->out + pass->begin;
        kernel_reference_divide(how->dtype, block, block, how->divisor,
                                block_bytes / kernel_dtype_bytes(how->dtype));
        if (also) {
            memcpy(also + pass->begin, block, block_bytes);
        }
        pass->begin = pass->end;
    }
}

void kernel_vector_reduce(const struct kernel_loops *loops, const struct kernel_reduce *how,
                          void *out, const void *const *inputs, int input_count, size_t count)
{
    const struct lowering *lowering = &lowerings[how->dtype];
    size_t bytes = count * kernel_dtype_bytes(how->dtype);
    if (lowering->is_complex && how->op == SHOAL_PROD) {
        kernel_reference_reduce(how, out, inputs, input_count, count);
        if (how->also) {
            kernel_copy(how->also, out, bytes, how->stream);
        }
        return;
    }
    bool ordered = how->op == SHOAL_MIN || how->op == SHOAL_MAX;
    enum kernel_lane lane = ordered ? lowering->order_lane : lowering->lane;
    enum kernel_combine combine =
        how->dtype == SHOAL_BOOL ? bool_combines[how->op] : combines[how->op];
    void (*loop)(const struct kernel_pass *) = loops->reduce[lane][combine];
    BASE_ASSERT(loop != NULL);
    bool divides = how->op == SHOAL_AVG && how->divisor > 1;
    const void *streamed = how->also ? how->also : out;
    struct kernel_pass pass = {
        .out = out,
        .inputs = (const char *const *)inputs,
        .input_count = input_count,
        .divisor = divides && lowering->divides ? how->divisor : 0,
        .end = bytes,
        .stream = how->stream && streaming_pays(streamed, inputs, input_count, bytes),
        .also = how->also,
        .owns = how->owns,
    };
    if (divides && !lowering->divides) {
        divide_in_blocks(loop, &pass, how);
    } else {
        loop(&pass);
    }
}

void kernel_vector_scale(const struct kernel_loops *loops, enum shoal_dtype dtype, void *out,
                         const void *in, const void *factor, size_t count)
{
    const struct lowering *lowering = &lowerings[dtype];
    if (lowering->is_complex) {
        kernel_reference_scale(dtype, out, in, factor, count);
    } else {
        loops->scale[lowering->lane](out, in, factor, count * kernel_dtype_bytes(dtype));
    }
}

void kernel_vector_divide(const struct kernel_loops *loops, enum shoal_dtype dtype, void *out,
                          const void *in, uint32_t divisor, size_t count)
{
    if (lowerings[dtype].divides) {
        struct kernel_reduce how = {.dtype = dtype, .op = SHOAL_AVG, .divisor = divisor};
        kernel_vector_reduce(loops, &how, out, &in, 1, count);
    } else {
        kernel_reference_divide(dtype, out, in, divisor, count);
    }
}

/* A reduction of one input is a copy that can go around the cache. */
void kernel_vector_copy_streamed(const struct kernel_loops *loops, void *out, const void *in,
                                 size_t bytes)
{
    struct kernel_reduce how = {.dtype = SHOAL_U8, .op = SHOAL_BOR, .stream = true};
    kernel_vector_reduce(loops, &how, out, &in, 1, bytes);
}
