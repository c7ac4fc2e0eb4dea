/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.c: the public face of fusion buffers: checks arguments, lends groups and submission. */
#include "fuse/fuse.h"

#include "api/handles.h"
#include "base/memory.h"
#include "base/options.h"
#include "kernel/kernel.h"

/* ---- making one
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status check_lists(const struct shoal_fuse_options *options)
{
    if (options->tensor_count < 1 || options->tensor_count > FUSE_TENSORS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "options.tensor_count is %d: a fuse takes 1 to %d",
                          options->tensor_count, FUSE_TENSORS_MAX);
    if (!options->counts)
        return base_error(SHOAL_ERR_ARGUMENT, "options.counts is NULL");
    for (int i = 0; options->tensor_names && i < options->tensor_count; i++)
        if (!options->tensor_names[i])
            return base_error(SHOAL_ERR_ARGUMENT, "options.tensor_names[%d] is NULL", i);
    return SHOAL_OK;
}

static enum shoal_status check_order(const struct shoal_fuse_options *options)
{
    bool *seen = NULL;
    enum shoal_status status = SHOAL_OK;
    if (!options->order)
        return SHOAL_OK;
    TRY(BASE_NEW_ARRAY(&seen, options->tensor_count, "a fuse's order"));
    for (int i = 0; i < options->tensor_count && status == SHOAL_OK; i++) {
        int tensor = options->order[i];
        bool exists = tensor >= 0 && tensor < options->tensor_count;
        if (!exists || seen[tensor])
            status = base_error(SHOAL_ERR_ARGUMENT, "options.order[%d] is %d, which is %s", i,
                                tensor, exists ? "there twice" : "no tensor");
        else
            seen[tensor] = true;
    }
    base_free(seen);
    return status;
}

static enum shoal_status check_sizes(const struct shoal_fuse_options *options)
{
    const struct base_option *bytes = &base_options()[OPTION_FUSE_BYTES];
    const struct base_option *in_flight = &base_options()[OPTION_FUSE_IN_FLIGHT];
    if (options->buffer_bytes > 0 && (options->buffer_bytes < (uint64_t)bytes->minimum ||
                                      options->buffer_bytes > (uint64_t)bytes->maximum))
        return base_error(SHOAL_ERR_ARGUMENT, "options.buffer_bytes is %llu: give %lld to %lld",
                          (unsigned long long)options->buffer_bytes, (long long)bytes->minimum,
                          (long long)bytes->maximum);
    if (options->in_flight < 0 || options->in_flight > in_flight->maximum)
        return base_error(SHOAL_ERR_ARGUMENT, "options.in_flight is %d: give 1 to %lld",
                          options->in_flight, (long long)in_flight->maximum);
    return SHOAL_OK;
}

static enum shoal_status check_compression(const struct comm_group *group,
                                           const struct shoal_fuse_options *options)
{
    const char *name = fuse_compression_name(options->compression);
    if (!name)
        return base_error(SHOAL_ERR_ARGUMENT, "options.compression %d is none of shoal.h's",
                          (int)options->compression);
    if (options->compression != SHOAL_COMPRESSION_NONE && options->dtype != SHOAL_F32)
        return base_error(SHOAL_ERR_UNSUPPORTED,
                          "options.compression is %s, which is of f32, and the tensors are %s",
                          name, kernel_dtype_name(options->dtype));
    if (options->compression == SHOAL_COMPRESSION_INT8 && group->reproducible)
        return base_error(
            SHOAL_ERR_UNSUPPORTED,
            "options.compression is int8, whose bits depend on where tensors lie, and "
            "the group is reproducible: use bf16 or f16, or unset SHOAL_REPRODUCIBLE");
    return SHOAL_OK;
}

static enum shoal_status check_options(const struct comm_group *group,
                                       const struct shoal_fuse_options *options)
{
    if (!options)
        return base_error(SHOAL_ERR_ARGUMENT, "options is NULL: they have the list of tensors");
    if (options->struct_bytes < sizeof(*options))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_FUSE_OPTIONS_INIT",
                          options->struct_bytes, sizeof(*options));
    TRY(check_lists(options));
    if (kernel_dtype_bytes(options->dtype) == 0)
        return base_error(SHOAL_ERR_ARGUMENT, "options.dtype %d is none of shoal.h's",
                          (int)options->dtype);
    if ((options->op != SHOAL_SUM && options->op != SHOAL_AVG) ||
        !kernel_supports(options->dtype, options->op))
        return base_error(SHOAL_ERR_UNSUPPORTED,
                          "a fuse can't make the %s of %s: it takes sum and avg, avg not of bool",
                          kernel_op_name(options->op), kernel_dtype_name(options->dtype));
    TRY(check_sizes(options));
    TRY(check_compression(group, options));
    return check_order(options);
}

static enum shoal_status create(shoal_group_t group, const struct shoal_fuse_options *options,
                                shoal_fuse_t *out)
{
    struct fuse *fuse = NULL;
    TRY(api_check_group(group));
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    TRY(check_options(api_group(group), options));
    struct fuse_place place = {api_group(group), api_submit, api_twin};
    TRY(fuse_create(&place, options, &fuse));
    *out = (shoal_fuse_t)fuse;
    return SHOAL_OK;
}

enum shoal_status shoal_fuse_create(shoal_group_t group, const struct shoal_fuse_options *options,
                                    shoal_fuse_t *out)
{
    return api_end(group, create(group, options, out));
}

/* ---- using it
 * ---------------------------------------------------------------------------------------------- */

static struct fuse *inside(shoal_fuse_t fuse)
{
    return (struct fuse *)fuse;
}

static enum shoal_status check(shoal_fuse_t fuse)
{
    if (!fuse)
        return base_error(SHOAL_ERR_ARGUMENT, "fuse is NULL: make one with shoal_fuse_create");
    return api_check_group((shoal_group_t)fuse_parent(inside(fuse)));
}

static enum shoal_status check_tensor(shoal_fuse_t fuse, int tensor)
{
    TRY(check(fuse));
    if (tensor < 0 || tensor >= fuse_tensor_count(inside(fuse)))
        return base_error(SHOAL_ERR_ARGUMENT, "tensor is %d: the fuse has 0 to %d", tensor,
                          fuse_tensor_count(inside(fuse)) - 1);
    return SHOAL_OK;
}

static enum shoal_status end(shoal_fuse_t fuse, enum shoal_status status)
{
    return api_end(fuse ? (shoal_group_t)fuse_parent(inside(fuse)) : NULL, status);
}

enum shoal_status shoal_fuse_free(shoal_fuse_t fuse)
{
    if (!fuse)
        return SHOAL_OK;
    enum shoal_status status = check(fuse);
    if (status != SHOAL_OK)
        return end(fuse, status);
    fuse_free(inside(fuse));
    return SHOAL_OK;
}

enum shoal_status shoal_fuse_home(shoal_fuse_t fuse, int tensor, void **out)
{
    enum shoal_status status = check_tensor(fuse, tensor);
    if (status == SHOAL_OK && !out)
        status = base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    if (status == SHOAL_OK)
        *out = fuse_home(inside(fuse), tensor);
    return end(fuse, status);
}

enum shoal_status shoal_fuse_add(shoal_fuse_t fuse, int tensor, const void *in, void *out,
                                 uint64_t count)
{
    enum shoal_status status = check_tensor(fuse, tensor);
    if (status == SHOAL_OK)
        status = fuse_add(inside(fuse), tensor, in, out, count);
    return end(fuse, status);
}

enum shoal_status shoal_fuse_flush(shoal_fuse_t fuse)
{
    enum shoal_status status = check(fuse);
    return end(fuse, status == SHOAL_OK ? fuse_flush(inside(fuse)) : status);
}

enum shoal_status shoal_fuse_wait(shoal_fuse_t fuse, int tensor)
{
    enum shoal_status status = check_tensor(fuse, tensor);
    return end(fuse, status == SHOAL_OK ? fuse_wait(inside(fuse), tensor) : status);
}

enum shoal_status shoal_fuse_finish(shoal_fuse_t fuse)
{
    enum shoal_status status = check(fuse);
    return end(fuse, status == SHOAL_OK ? fuse_finish(inside(fuse)) : status);
}

/* ---- seeing it
 * ---------------------------------------------------------------------------------------------- */

enum shoal_status shoal_fuse_counters(shoal_fuse_t fuse, struct shoal_fuse_counters *out)
{
    struct shoal_fuse_counters counted;
    enum shoal_status status = check(fuse);
    if (status != SHOAL_OK)
        return end(fuse, status);
    fuse_counters(inside(fuse), &counted);
    return end(fuse,
               api_give(out, &counted, sizeof(counted),
                        offsetof(struct shoal_fuse_counters, joined), "SHOAL_FUSE_COUNTERS_INIT"));
}

static enum shoal_status give_traffic(const struct fuse *fuse, struct shoal_counters *out)
{
    const struct comm_group *groups[] = {fuse_data_group(fuse), fuse_gather_group(fuse)};
    return api_give_counters(groups, groups[1] ? 2 : 1, out);
}

enum shoal_status shoal_fuse_traffic(shoal_fuse_t fuse, struct shoal_counters *out)
{
    enum shoal_status status = check(fuse);
    if (status == SHOAL_OK)
        status = give_traffic(inside(fuse), out);
    return end(fuse, status);
}

int shoal_fuse_buffer_count(shoal_fuse_t fuse)
{
    return fuse ? fuse_buffer_count(inside(fuse)) : -1;
}

enum shoal_status shoal_fuse_times(shoal_fuse_t fuse, int buffer, struct shoal_fuse_times *out)
{
    struct shoal_fuse_times times;
    enum shoal_status status = check(fuse);
    if (status == SHOAL_OK && (buffer < 0 || buffer >= fuse_buffer_count(inside(fuse))))
        status = base_error(SHOAL_ERR_ARGUMENT, "buffer is %d: the fuse has 0 to %d", buffer,
                            fuse_buffer_count(inside(fuse)) - 1);
    if (status != SHOAL_OK)
        return end(fuse, status);
    fuse_times(inside(fuse), buffer, &times);
    return end(fuse, api_give(out, &times, sizeof(times), sizeof(times), "SHOAL_FUSE_TIMES_INIT"));
}
