/* SPDX-License-Identifier: Apache-2.0 */
/* not_finite.c: see not_finite.h. */
#include "support/not_finite.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/processes.h"

/* Kinds of elements, by turns. */
enum { FINITE, PLUS, MINUS, BOTH, NO_NUMBER, NO_NUMBER_AND_PLUS, KINDS };

static float input(uint64_t element, int rank, int size)
{
    bool first = rank == 0, last = rank == size - 1;
    switch (element % KINDS) {
    case PLUS: return last ? (float)INFINITY : 1;
    case MINUS: return first ? -(float)INFINITY : 1;
    case BOTH: return first ? (float)INFINITY : -(float)INFINITY;
    case NO_NUMBER: return last ? (float)NAN : 1;
    case NO_NUMBER_AND_PLUS: return first ? (float)NAN : (float)INFINITY;
    default: return 1;
    }
}

/* Of the mean over all ranks. */
static bool is_right(uint64_t element, double mean)
{
    switch (element % KINDS) {
    case FINITE: return mean == 1;
    case PLUS: return isinf(mean) && mean > 0;
    case MINUS: return isinf(mean) && mean < 0;
    default: return isnan(mean);
    }
}

/* ---- elements of all types of floats: 1, infinities and NaN
 * ---------------------------------------------------------------------------------------------- */

static uint16_t half_of(float value)
{
    return isnan(value) ? 0x7e00 : value == 1 ? 0x3c00 : value > 0 ? 0x7c00 : 0xfc00;
}

static double half_value(uint16_t bits)
{
    if ((bits & 0x7c00) != 0x7c00)
        return bits == 0x3c00 ? 1 : 0;
    return bits & 0x3ff ? (double)NAN : bits & 0x8000 ? -(double)INFINITY : (double)INFINITY;
}

static void put(enum shoal_dtype dtype, void *data, uint64_t element, float value)
{
    if (dtype == SHOAL_F32)
        ((float *)data)[element] = value;
    else if (dtype == SHOAL_F64)
        ((double *)data)[element] = value;
    else if (dtype == SHOAL_F16)
        ((uint16_t *)data)[element] = half_of(value);
    else
        memcpy((uint16_t *)data + element, (char *)&value + 2, 2);
}

static double get(enum shoal_dtype dtype, const void *data, uint64_t element)
{
    float value = 0;
    if (dtype == SHOAL_F32)
        return (double)((const float *)data)[element];
    if (dtype == SHOAL_F64)
        return ((const double *)data)[element];
    if (dtype == SHOAL_F16)
        return half_value(((const uint16_t *)data)[element]);
    memcpy((char *)&value + 2, (const uint16_t *)data + element, 2);
    return (double)value;
}

/* ---- sums
 * ---------------------------------------------------------------------------------------------- */

/* `out` has the means of `count` elements from number `first` on. */
static int check(enum shoal_dtype dtype, const void *out, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!is_right(first + i, get(dtype, out, i))) {
            fprintf(stderr, "%s: element %llu of %llu is %g\n", shoal_dtype_name(dtype),
                    (unsigned long long)(first + i), (unsigned long long)count, get(dtype, out, i));
            return 1;
        }
    return 0;
}

static int sum(shoal_group_t group, enum shoal_dtype dtype, uint64_t count, void *in, void *out)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    uint64_t share = count / (uint64_t)size;
    for (uint64_t i = 0; i < count; i++)
        put(dtype, in, i, input(i, rank, size));
    CHECK(shoal_allreduce(in, out, count, dtype, SHOAL_AVG, group, NULL));
    REQUIRE(check(dtype, out, 0, count) == 0);
    CHECK(shoal_reduce_scatter(in, out, share, dtype, SHOAL_AVG, group, NULL));
    REQUIRE(check(dtype, out, share * (uint64_t)rank, share) == 0);
    return 0;
}

int not_finite_sums(shoal_group_t group, uint64_t count)
{
    static const enum shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_F64, SHOAL_F16, SHOAL_BF16};
    void *in = malloc(count * sizeof(double)), *out = malloc(count * sizeof(double));
    int bad = !in || !out;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]) && !bad; i++)
        bad = sum(group, dtypes[i], count, in, out);
    free(in);
    free(out);
    return bad;
}

/* ---- fused
 * ---------------------------------------------------------------------------------------------- */

#define TENSORS 3
static const uint64_t counts[TENSORS] = {20011, 50001, 1009};

/* Of ones only if `finite`. */
static int step(shoal_group_t group, shoal_fuse_t fuse, bool finite)
{
    int rank = shoal_group_rank(group), size = shoal_group_size(group);
    float *homes[TENSORS];
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        CHECK(shoal_fuse_home(fuse, tensor, (void **)&homes[tensor]));
        for (uint64_t i = 0; i < counts[tensor]; i++)
            homes[tensor][i] = finite ? 1 : input(i, rank, size);
        CHECK(shoal_fuse_add(fuse, tensor, NULL, NULL, counts[tensor]));
    }
    CHECK(shoal_fuse_finish(fuse));
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        CHECK(shoal_fuse_home(fuse, tensor, (void **)&homes[tensor]));
        for (uint64_t i = 0; i < counts[tensor] && finite; i++)
            REQUIRE(homes[tensor][i] == 1);
        REQUIRE(finite || check(SHOAL_F32, homes[tensor], 0, counts[tensor]) == 0);
    }
    return 0;
}

int not_finite_fused(shoal_group_t group, enum shoal_compression compression)
{
    struct shoal_fuse_options options = SHOAL_FUSE_OPTIONS_INIT;
    shoal_fuse_t fuse = NULL;
    options.tensor_count = TENSORS;
    options.counts = counts;
    options.op = SHOAL_AVG;
    options.buffer_bytes = 128 << 10;
    options.compression = compression;
    CHECK(shoal_fuse_create(group, &options, &fuse));
    for (int i = 0; i < 4; i++)
        REQUIRE(step(group, fuse, i % 2 == 1) == 0);
    CHECK(shoal_fuse_free(fuse));
    return 0;
}
