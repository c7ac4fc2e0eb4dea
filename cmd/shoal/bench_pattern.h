/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_pattern.h: what a benchmark writes into its buffers before an operation, and what must be
 * in them behind it. Libc only, because the programs that measure other libraries use it too.
 *
 * Element i of a buffer holds a small integer that depends on a phase of 0 to 7, which moves on
 * with i, the rank and the round. All elements of one phase have one value, so an expected result
 * is a table of eight, sums stay exact in 16-bit floats, and filling and checking run at memcpy's
 * speed.
 */
#ifndef SHOAL_CMD_BENCH_PATTERN_H
#define SHOAL_CMD_BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_PHASES        8
#define BENCH_BLOCK         64 /* elements */
#define BENCH_ELEMENT_BYTES 16 /* the largest dtype */

enum bench_dtype {
    BENCH_F64,
    BENCH_F32,
    BENCH_F16,
    BENCH_BF16,
    BENCH_I8,
    BENCH_U8,
    BENCH_I16,
    BENCH_I32,
    BENCH_I64,
    BENCH_U16,
    BENCH_U32,
    BENCH_U64,
    BENCH_BOOL,
    BENCH_COMPLEX64,
    BENCH_COMPLEX128,
    BENCH_DTYPE_COUNT
};

enum bench_reduction {
    BENCH_SUM,
    BENCH_AVG,
    BENCH_PROD,
    BENCH_MIN,
    BENCH_MAX,
    BENCH_BAND,
    BENCH_BOR,
    BENCH_BXOR,
    BENCH_LAND,
    BENCH_LOR,
    BENCH_LXOR,
    BENCH_REDUCTION_COUNT
};

const char *bench_dtype_name(enum bench_dtype dtype);
size_t bench_dtype_bytes(enum bench_dtype dtype);
const char *bench_reduction_name(enum bench_reduction reduction);
/* Whether results of this pair can be checked here: numbers, no product or order of complex. */
bool bench_reduction_checkable(enum bench_reduction reduction, enum bench_dtype dtype);

/* One prepared pattern: a block of elements for each phase that a block can start with. */
struct bench_pattern {
    size_t element_bytes;
    bool rounded; /* compare with a tolerance: averages of floats */
    enum bench_dtype dtype;
    unsigned char blocks[BENCH_PHASES][BENCH_BLOCK * BENCH_ELEMENT_BYTES];
};

/* What `rank` writes in `round`. With `reducing` the ranks' values differ little, so that their sum
 * still differs from element to element. */
void bench_pattern_input(struct bench_pattern *out, enum bench_dtype dtype,
                         enum bench_reduction reduction, bool reducing, int rank, uint64_t round);
/* What a reduction over `ranks` ranks must give. */
void bench_pattern_reduced(struct bench_pattern *out, enum bench_dtype dtype,
                           enum bench_reduction reduction, int ranks, uint64_t round);

/* Elements first to first + count of the pattern's endless sequence, to or from buffer[0]. Check
 * returns the index in buffer of the first wrong element, or count. */
void bench_pattern_fill(const struct bench_pattern *pattern, void *buffer, uint64_t first,
                        uint64_t count);
uint64_t bench_pattern_check(const struct bench_pattern *pattern, const void *buffer,
                             uint64_t first, uint64_t count);

#endif
