/* SPDX-License-Identifier: Apache-2.0 */
/* pipe.c: the public face of messages between pipeline stages: checks arguments. */
#include "pipe/pipe.h"

#include "api/handles.h"

/* ---- making one
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status check_options(const struct comm_group *group,
                                       const struct shoal_pipe_options *options)
{
    if (options->struct_bytes < sizeof(*options))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PIPE_OPTIONS_INIT",
                          options->struct_bytes, sizeof(*options));
    if (group->size > SHOAL_PIPE_RANKS_MAX)
        return base_error(SHOAL_ERR_LIMIT, "a pipe takes %d ranks, and the group has %d",
                          SHOAL_PIPE_RANKS_MAX, group->size);
    if (options->order != SHOAL_PIPE_INTERLEAVED && options->order != SHOAL_PIPE_SIMPLE)
        return base_error(SHOAL_ERR_ARGUMENT, "options.order %d is none of shoal.h's",
                          (int)options->order);
    if (options->active_microbatches < 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.active_microbatches is %d: give 1 or more, or 0 for no limit",
                          options->active_microbatches);
    if (options->kept_microbatches < 0)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.kept_microbatches is %d: give 1 or more, or 0 for no limit",
                          options->kept_microbatches);
    if (options->module_count < 0)
        return base_error(SHOAL_ERR_ARGUMENT, "options.module_count is %d", options->module_count);
    for (int i = 0; options->module_names && i < options->module_count; i++)
        if (!options->module_names[i])
            return base_error(SHOAL_ERR_ARGUMENT, "options.module_names[%d] is NULL", i);
    return SHOAL_OK;
}

static enum shoal_status create(shoal_group_t group, const struct shoal_pipe_options *options,
                                shoal_pipe_t *out)
{
    struct shoal_pipe_options none = SHOAL_PIPE_OPTIONS_INIT;
    struct pipe *pipe = NULL;
    TRY(api_check_group(group));
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    if (!options)
        options = &none;
    TRY(check_options(api_group(group), options));
    struct pipe_place place = {api_group(group), api_submit};
    TRY(pipe_create(&place, options, &pipe));
    *out = (shoal_pipe_t)pipe;
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_create(shoal_group_t group, const struct shoal_pipe_options *options,
                                    shoal_pipe_t *out)
{
    return api_end(group, create(group, options, out));
}

static struct pipe *inside(shoal_pipe_t pipe)
{
    return (struct pipe *)pipe;
}

static enum shoal_status check(shoal_pipe_t pipe)
{
    if (!pipe)
        return base_error(SHOAL_ERR_ARGUMENT, "pipe is NULL: make one with shoal_pipe_create");
    return api_check_group((shoal_group_t)pipe_parent(inside(pipe)));
}

static enum shoal_status check_out(shoal_pipe_t pipe, const void *out)
{
    TRY(check(pipe));
    return out ? SHOAL_OK : base_error(SHOAL_ERR_ARGUMENT, "the place for the result is NULL");
}

static enum shoal_status end(shoal_pipe_t pipe, enum shoal_status status)
{
    return api_end(pipe ? (shoal_group_t)pipe_parent(inside(pipe)) : NULL, status);
}

enum shoal_status shoal_pipe_free(shoal_pipe_t pipe)
{
    if (!pipe)
        return SHOAL_OK;
    enum shoal_status status = check(pipe);
    if (status != SHOAL_OK)
        return end(pipe, status);
    pipe_free(inside(pipe));
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_abort(shoal_pipe_t pipe, const char *reason)
{
    enum shoal_status status = check(pipe);
    if (status != SHOAL_OK)
        return end(pipe, status);
    pipe_abort(inside(pipe), reason);
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_health(shoal_pipe_t pipe)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_health(inside(pipe)) : status);
}

/* ---- values
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status check_rank(shoal_pipe_t pipe, const char *what, int rank)
{
    int size = pipe_parent(inside(pipe))->size;
    if (rank < 0 || rank >= size)
        return base_error(SHOAL_ERR_ARGUMENT, "%s is %d: the pipe has ranks 0 to %d", what, rank,
                          size - 1);
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_promise(shoal_pipe_t pipe, int home, uint64_t *id)
{
    enum shoal_status status = check_out(pipe, id);
    if (status == SHOAL_OK)
        status = check_rank(pipe, "home", home);
    if (status == SHOAL_OK)
        status = pipe_promise(inside(pipe), home, id);
    return end(pipe, status);
}

static enum shoal_status check_value(const struct shoal_pipe_value *value)
{
    if (value->descriptor_bytes > SHOAL_PIPE_BLOB_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "descriptor_bytes is %zu: at most %d",
                          value->descriptor_bytes, SHOAL_PIPE_BLOB_MAX);
    if (value->descriptor_bytes > 0 && !value->descriptor)
        return base_error(SHOAL_ERR_ARGUMENT, "descriptor is NULL");
    if (value->buffer_count < 0 || value->buffer_count > SHOAL_PIPE_BUFFERS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "buffer_count is %d: a value has 0 to %d",
                          value->buffer_count, SHOAL_PIPE_BUFFERS_MAX);
    if (value->buffer_count > 0 && !value->buffers)
        return base_error(SHOAL_ERR_ARGUMENT, "buffers is NULL");
    for (int i = 0; i < value->buffer_count; i++) {
        if (value->buffers[i].bytes > 0 && !value->buffers[i].data)
            return base_error(SHOAL_ERR_ARGUMENT, "buffers[%d].data is NULL", i);
        if (value->buffers[i].bytes > PIPE_BUFFER_BYTES_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "buffers[%d] has %llu bytes", i,
                              (unsigned long long)value->buffers[i].bytes);
    }
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_put(shoal_pipe_t pipe, uint64_t id, const void *descriptor,
                                 size_t descriptor_bytes, const struct shoal_pipe_buffer *buffers,
                                 int buffer_count)
{
    struct shoal_pipe_value value = {sizeof(value), descriptor, descriptor_bytes, buffers,
                                     buffer_count};
    enum shoal_status status = check(pipe);
    if (status == SHOAL_OK)
        status = check_value(&value);
    if (status == SHOAL_OK)
        status = pipe_put(inside(pipe), id, &value);
    return end(pipe, status);
}

enum shoal_status shoal_pipe_value(shoal_pipe_t pipe, uint64_t id, struct shoal_pipe_value *out)
{
    struct shoal_pipe_value value;
    enum shoal_status status = check_out(pipe, out);
    if (status == SHOAL_OK)
        status = pipe_value(inside(pipe), id, &value);
    if (status == SHOAL_OK)
        status = api_give(out, &value, sizeof(value), sizeof(value), "SHOAL_PIPE_VALUE_INIT");
    return end(pipe, status);
}

enum shoal_status shoal_pipe_release(shoal_pipe_t pipe, uint64_t id)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_release(inside(pipe), id) : status);
}

enum shoal_status shoal_pipe_drop(shoal_pipe_t pipe, uint64_t id)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_drop(inside(pipe), id) : status);
}

/* ---- tasks
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status check_lists(const struct shoal_pipe_task *task)
{
    if (task->blob_bytes > SHOAL_PIPE_BLOB_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "task.blob_bytes is %zu: at most %d",
                          task->blob_bytes, SHOAL_PIPE_BLOB_MAX);
    if (task->blob_bytes > 0 && !task->blob)
        return base_error(SHOAL_ERR_ARGUMENT, "task.blob is NULL");
    if (task->need_count < 0 || task->need_count > SHOAL_PIPE_NEEDS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "task.need_count is %d: a task has 0 to %d",
                          task->need_count, SHOAL_PIPE_NEEDS_MAX);
    if (task->need_count > 0 && !task->needs)
        return base_error(SHOAL_ERR_ARGUMENT, "task.needs is NULL");
    return SHOAL_OK;
}

static enum shoal_status check_task(shoal_pipe_t pipe, const struct shoal_pipe_task *task)
{
    int modules = pipe_module_count(inside(pipe));
    if (!task)
        return base_error(SHOAL_ERR_ARGUMENT, "task is NULL");
    if (task->struct_bytes < sizeof(*task))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "task.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PIPE_TASK_INIT",
                          task->struct_bytes, sizeof(*task));
    TRY(check_rank(pipe, "task.rank", task->rank));
    if ((int)task->kind < 0 || task->kind >= SHOAL_PIPE_KIND_COUNT)
        return base_error(SHOAL_ERR_ARGUMENT, "task.kind %d is none of shoal.h's", (int)task->kind);
    if (task->module < -1 || task->module >= modules)
        return base_error(SHOAL_ERR_ARGUMENT, "task.module is %d: the pipe has %d modules",
                          task->module, modules);
    if (task->microbatch < 0 || task->microbatch > PIPE_MICROBATCH_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "task.microbatch is %d: give 0 to %d",
                          task->microbatch, PIPE_MICROBATCH_MAX);
    return check_lists(task);
}

enum shoal_status shoal_pipe_submit(shoal_pipe_t pipe, const struct shoal_pipe_task *task)
{
    enum shoal_status status = check(pipe);
    if (status == SHOAL_OK)
        status = check_task(pipe, task);
    if (status == SHOAL_OK)
        status = pipe_submit(inside(pipe), task);
    return end(pipe, status);
}

enum shoal_status shoal_pipe_next(shoal_pipe_t pipe, int64_t timeout_ms,
                                  struct shoal_pipe_task *out)
{
    struct shoal_pipe_task task;
    enum shoal_status status = check_out(pipe, out);
    if (status == SHOAL_OK && out->struct_bytes < sizeof(task))
        status = base_error(SHOAL_ERR_ARGUMENT, "start from SHOAL_PIPE_TASK_INIT");
    if (status == SHOAL_OK)
        status = pipe_next(inside(pipe), timeout_ms, &task);
    if (status == SHOAL_OK)
        status = api_give(out, &task, sizeof(task), sizeof(task), "SHOAL_PIPE_TASK_INIT");
    return status == SHOAL_IN_PROGRESS ? status : end(pipe, status);
}

enum shoal_status shoal_pipe_microbatch_end(shoal_pipe_t pipe)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_microbatch_end(inside(pipe)) : status);
}

static enum shoal_status check_list(shoal_pipe_t pipe, const struct shoal_pipe_run *runs, int count)
{
    int modules = pipe_module_count(inside(pipe));
    if (count < 0 || count > SHOAL_PIPE_TASKS_MAX || (count > 0 && !runs))
        return base_error(SHOAL_ERR_ARGUMENT, "a list takes 0 to %d tasks, not %d",
                          SHOAL_PIPE_TASKS_MAX, count);
    for (int i = 0; i < count; i++)
        if ((int)runs[i].kind <= SHOAL_PIPE_CONTROL || runs[i].kind >= SHOAL_PIPE_KIND_COUNT ||
            runs[i].module < -1 || runs[i].module >= modules || runs[i].microbatch < 0 ||
            runs[i].microbatch > PIPE_MICROBATCH_MAX)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "runs[%d] is no task that can be listed: kind %d, module %d, "
                              "microbatch %d",
                              i, (int)runs[i].kind, runs[i].module, runs[i].microbatch);
    return SHOAL_OK;
}

enum shoal_status shoal_pipe_list(shoal_pipe_t pipe, const struct shoal_pipe_run *runs, int count)
{
    enum shoal_status status = check(pipe);
    if (status == SHOAL_OK)
        status = check_list(pipe, runs, count);
    if (status == SHOAL_OK)
        status = pipe_list(inside(pipe), runs, count);
    return end(pipe, status);
}

enum shoal_status shoal_pipe_step_begin(shoal_pipe_t pipe)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_step_begin(inside(pipe)) : status);
}

enum shoal_status shoal_pipe_step_end(shoal_pipe_t pipe)
{
    enum shoal_status status = check(pipe);
    return end(pipe, status == SHOAL_OK ? pipe_step_end(inside(pipe)) : status);
}

/* ---- seeing it
 * ---------------------------------------------------------------------------------------------- */

enum shoal_status shoal_pipe_counters(shoal_pipe_t pipe, struct shoal_pipe_counters *out)
{
    struct shoal_pipe_counters counted;
    enum shoal_status status = check(pipe);
    if (status != SHOAL_OK)
        return end(pipe, status);
    pipe_counters(inside(pipe), &counted);
    return end(pipe, api_give(out, &counted, sizeof(counted), sizeof(counted),
                              "SHOAL_PIPE_COUNTERS_INIT"));
}

enum shoal_status shoal_pipe_timeline(shoal_pipe_t pipe, struct shoal_pipe_run *runs, int capacity,
                                      int *count)
{
    enum shoal_status status = check_out(pipe, count);
    if (status == SHOAL_OK && (capacity < 0 || (capacity > 0 && !runs)))
        status = base_error(SHOAL_ERR_ARGUMENT, "there is no place for %d runs", capacity);
    if (status == SHOAL_OK)
        *count = pipe_timeline(inside(pipe), runs, capacity);
    return end(pipe, status);
}
