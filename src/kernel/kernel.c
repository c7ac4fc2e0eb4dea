/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c: the doors of the room: picks the form once and calls it.
 *
 * The form in use is one atomic pointer, set at first use to the best one this processor has or the
 * one that option SHOAL_ISA names; two threads that meet there store the same value.
 */
#include "kernel/kernel.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "kernel/form.h"
#include "kernel/rounding.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

const struct kernel_form kernel_forms[] = {
    {"scalar", always, NULL},
    {"base", always, &kernel_loops_base},
#if defined(__x86_64__)
    {"avx2", has_avx2, &kernel_loops_avx2},
    {"avx512", has_avx512, &kernel_loops_avx512},
#elif defined(__aarch64__)
    {"neon", always, &kernel_loops_neon},
#endif
    {NULL, NULL, NULL},
};

static _Atomic(const struct kernel_form *) form_in_use;

static const struct kernel_form *find_form(const char *name)
{
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (strcmp(form->name, name) == 0 && form->supported()) {
            return form;
        }
    }
    return NULL;
}

static const struct kernel_form *best_form(void)
{
    const struct kernel_form *best = kernel_forms;
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        if (form->supported()) {
            best = form;
        }
    }
    return best;
}

static const struct kernel_form *choose_form(void)
{
    const char *wanted = base_option_text(OPTION_ISA);
    const struct kernel_form *form = wanted != NULL ? find_form(wanted) : NULL;
    if (form == NULL) {
        form = best_form();
        if (wanted != NULL) {
            base_log(BASE_LOG_WARN, "SHOAL_ISA=%s: this processor has no such form; using %s",
                     wanted, form->name);
        }
    }
    return form;
}

static inline const struct kernel_form *form_now(void)
{
    const struct kernel_form *form = atomic_load_explicit(&form_in_use, memory_order_relaxed);
    if (form == NULL) {
        form = choose_form();
        atomic_store_explicit(&form_in_use, form, memory_order_relaxed);
    }
    return form;
}

const char *kernel_isa(void)
{
    return form_now()->name;
}

bool kernel_force_isa(const char *name)
{
    const struct kernel_form *form = find_form(name);
    if (form != NULL) {
        atomic_store_explicit(&form_in_use, form, memory_order_relaxed);
    }
    return form != NULL;
}

/* For loops that have one output. */
static void copy_also(const struct kernel_reduce *how, const void *out, size_t bytes)
{
    if (how->also != NULL) {
        kernel_copy(how->also, out, bytes, how->stream);
    }
}

void kernel_reduce(const struct kernel_reduce *how, void *out, const void *const *inputs,
                   int input_count, size_t count)
{
    BASE_ASSERT(kernel_supports(how->dtype, how->op) && input_count >= 1);
    if (count == 0) {
        return;
    }
    size_t bytes = count * kernel_dtype_bytes(how->dtype);
    if (how->wide_out || how->wide_inputs != NULL) {
        BASE_ASSERT(how->also == NULL);
        kernel_wide_reduce(how, out, inputs, input_count, count);
        return;
    }
    if (input_count == 1 && !(how->op == SHOAL_AVG && how->divisor > 1)) {
        kernel_copy(out, inputs[0], bytes, how->stream && how->also == NULL);
        copy_also(how, out, bytes);
        return;
    }
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_reduce(how, out, inputs, input_count, count);
        copy_also(how, out, bytes);
    } else {
        kernel_vector_reduce(loops, how, out, inputs, input_count, count);
    }
    rounding_leave(mode);
}

void kernel_scale(enum shoal_dtype dtype, void *out, const void *in, const void *factor,
                  size_t count)
{
    BASE_ASSERT(kernel_supports(dtype, SHOAL_PREMUL_SUM));
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_scale(dtype, out, in, factor, count);
    } else {
        kernel_vector_scale(loops, dtype, out, in, factor, count);
    }
    rounding_leave(mode);
}

void kernel_divide(enum shoal_dtype dtype, void *out, const void *in, uint32_t divisor,
                   size_t count)
{
    BASE_ASSERT(kernel_supports(dtype, SHOAL_AVG));
    if (divisor <= 1) {
        kernel_copy(out, in, count * kernel_dtype_bytes(dtype), false);
        return;
    }
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_divide(dtype, out, in, divisor, count);
    } else {
        kernel_vector_divide(loops, dtype, out, in, divisor, count);
    }
    rounding_leave(mode);
}

void kernel_copy(void *out, const void *in, size_t bytes, bool stream)
{
    if (bytes == 0 || out == in) {
        return;
    }
    const struct kernel_loops *loops = stream ? form_now()->loops : NULL;
    if (loops != NULL) {
        kernel_vector_copy_streamed(loops, out, in, bytes);
    } else {
        memcpy(out, in, bytes);
    }
}

void kernel_own(const void *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += KERNEL_LINE_BYTES) {
        kernel_own_line((const char *)memory + at);
    }
}

void kernel_to_f32(enum shoal_dtype from, float *out, const void *in, size_t count)
{
    BASE_ASSERT(from == SHOAL_F16 || from == SHOAL_BF16);
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_to_f32(from, out, in, count);
    } else {
        (from == SHOAL_F16 ? loops->f16_to_f32 : loops->bf16_to_f32)(out, in, count);
    }
    rounding_leave(mode);
}

void kernel_from_f32(enum shoal_dtype to, void *out, const float *in, size_t count)
{
    BASE_ASSERT(to == SHOAL_F16 || to == SHOAL_BF16);
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_from_f32(to, out, in, count);
    } else {
        (to == SHOAL_F16 ? loops->f16_from_f32 : loops->bf16_from_f32)(out, in, count);
    }
    rounding_leave(mode);
}

void kernel_compress(enum shoal_dtype to, void *out, const float *in, float *residual, size_t count)
{
    BASE_ASSERT(to == SHOAL_F16 || to == SHOAL_BF16);
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    if (loops == NULL) {
        kernel_reference_compress(to, out, in, residual, count);
    } else {
        (to == SHOAL_F16 ? loops->f16_compress : loops->bf16_compress)(out, in, residual, count);
    }
    rounding_leave(mode);
}

void kernel_pack_blocks(struct kernel_block *out, const float *in, float *residual,
                        size_t block_count)
{
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    for (size_t i = 0; i < block_count; i++)
        (loops ? loops->pack_block
               : kernel_reference_pack_block)(&out[i], in + i * KERNEL_BLOCK_COUNT,
                                              residual ? residual + i * KERNEL_BLOCK_COUNT : NULL);
    rounding_leave(mode);
}

void kernel_unpack_blocks(float *out, const struct kernel_block *in, bool add, size_t block_count)
{
    const struct kernel_loops *loops = form_now()->loops;
    uint64_t mode = rounding_enter();
    for (size_t i = 0; i < block_count; i++)
        (loops ? loops->unpack_block : kernel_reference_unpack_block)(out + i * KERNEL_BLOCK_COUNT,
                                                                      &in[i], add);
    rounding_leave(mode);
}
