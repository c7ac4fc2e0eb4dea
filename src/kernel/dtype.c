/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c: names, sizes and the table of which op has a meaning on which dtype.
 */
#include <string.h>

#include "kernel/kernel.h"

enum kind { KIND_FLOAT = 1, KIND_INTEGER = 2, KIND_BOOL = 4, KIND_COMPLEX = 8 };

static const struct {
    const char *name;
    unsigned char bytes;
    unsigned char kind;
} dtypes[SHOAL_DTYPE_COUNT] = {
    [SHOAL_F64] = {"f64", 8, KIND_FLOAT},
    [SHOAL_F32] = {"f32", 4, KIND_FLOAT},
    [SHOAL_F16] = {"f16", 2, KIND_FLOAT},
    [SHOAL_BF16] = {"bf16", 2, KIND_FLOAT},
    [SHOAL_I8] = {"i8", 1, KIND_INTEGER},
    [SHOAL_U8] = {"u8", 1, KIND_INTEGER},
    [SHOAL_I16] = {"i16", 2, KIND_INTEGER},
    [SHOAL_I32] = {"i32", 4, KIND_INTEGER},
    [SHOAL_I64] = {"i64", 8, KIND_INTEGER},
    [SHOAL_U16] = {"u16", 2, KIND_INTEGER},
    [SHOAL_U32] = {"u32", 4, KIND_INTEGER},
    [SHOAL_U64] = {"u64", 8, KIND_INTEGER},
    [SHOAL_BOOL] = {"bool", 1, KIND_BOOL},
    [SHOAL_COMPLEX64] = {"complex64", 8, KIND_COMPLEX},
    [SHOAL_COMPLEX128] = {"complex128", 16, KIND_COMPLEX},
};

static const struct {
    const char *name;
    unsigned char kinds; /* on which it has a meaning */
} ops[SHOAL_OP_COUNT] = {
    [SHOAL_SUM] = {"sum", KIND_FLOAT | KIND_INTEGER | KIND_BOOL | KIND_COMPLEX},
    [SHOAL_AVG] = {"avg", KIND_FLOAT | KIND_INTEGER | KIND_COMPLEX},
    [SHOAL_PROD] = {"prod", KIND_FLOAT | KIND_INTEGER | KIND_BOOL | KIND_COMPLEX},
    [SHOAL_MIN] = {"min", KIND_FLOAT | KIND_INTEGER | KIND_BOOL},
    [SHOAL_MAX] = {"max", KIND_FLOAT | KIND_INTEGER | KIND_BOOL},
    [SHOAL_BAND] = {"band", KIND_INTEGER | KIND_BOOL},
    [SHOAL_BOR] = {"bor", KIND_INTEGER | KIND_BOOL},
    [SHOAL_BXOR] = {"bxor", KIND_INTEGER | KIND_BOOL},
    [SHOAL_LAND] = {"land", KIND_INTEGER | KIND_BOOL},
    [SHOAL_LOR] = {"lor", KIND_INTEGER | KIND_BOOL},
    [SHOAL_LXOR] = {"lxor", KIND_INTEGER | KIND_BOOL},
    [SHOAL_PREMUL_SUM] = {"premul_sum", KIND_FLOAT | KIND_INTEGER | KIND_COMPLEX},
};

static bool known_dtype(enum shoal_dtype dtype)
{
    return (unsigned)dtype < SHOAL_DTYPE_COUNT;
}

static bool known_op(enum shoal_op op)
{
    return (unsigned)op < SHOAL_OP_COUNT;
}

size_t kernel_dtype_bytes(enum shoal_dtype dtype)
{
    return known_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

bool kernel_dtype_is_half(enum shoal_dtype dtype)
{
    return dtype == SHOAL_F16 || dtype == SHOAL_BF16;
}

const char *kernel_dtype_name(enum shoal_dtype dtype)
{
    return known_dtype(dtype) ? dtypes[dtype].name : "?";
}

const char *kernel_op_name(enum shoal_op op)
{
    return known_op(op) ? ops[op].name : "?";
}

bool kernel_dtype_parse(const char *name, enum shoal_dtype *out)
{
    for (int i = 0; i < SHOAL_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (enum shoal_dtype)i;
            return true;
        }
    }
    return false;
}

bool kernel_op_parse(const char *name, enum shoal_op *out)
{
    for (int i = 0; i < SHOAL_OP_COUNT; i++) {
        if (strcmp(name, ops[i].name) == 0) {
            *out = (enum shoal_op)i;
            return true;
        }
    }
    return false;
}

bool kernel_supports(enum shoal_dtype dtype, enum shoal_op op)
{
    return known_dtype(dtype) && known_op(op) && (ops[op].kinds & dtypes[dtype].kind) != 0;
}
