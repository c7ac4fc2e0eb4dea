/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_step.c: a step of training: a third of the computing is the forward pass, then gradients
 * become ready as the model's table says, fill fusion buffers one behind the other, and each full
 * buffer is an allreduce, so many of them at a time. Of those that wait the one goes first that the
 * next forward pass needs first, which is the one that was ready last; rank 0 names it, so that the
 * others know of it a message later. The step is over when the last one is back. Or the forward
 * pass begins with what is there, and each tensor's part of it waits for its buffer only. A
 * buffer's homes begin at multiples of 64 bytes, as in fuse/.
 */
#include "sim.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

#define HOME_BYTES     64
#define WORD_RANKS_MAX 8 /* a broadcast's first rows in coll/choose.c */
#define FORWARD_SHARE  (1.0 / 3)

/* The buffers of a step: all but the last have one size, so two programs are enough. */
struct step {
    struct sim_scene *scene;
    uint64_t bytes; /* all homes together */
    int buffer_count;
    struct sim_operation *operations; /* [buffer_count] */
    struct sim_programs *whole, *last;
    double accelerators_ns; /* of a whole buffer, before it and after it */
};

static uint64_t home_bytes(const struct step *step, int tensor)
{
    const struct sim_request *request = step->scene->request;
    uint64_t bytes = request->model.tensors[tensor].count * step->scene->shape.elem_bytes;
    return (bytes + HOME_BYTES - 1) / HOME_BYTES * HOME_BYTES;
}

/* Buffer b is ready when the tensor that its last byte belongs to is. */
static void fill_buffers(struct step *step)
{
    const struct sim_request *request = step->scene->request;
    double forward_ns = FORWARD_SHARE * request->compute_ns;
    uint64_t end = 0;
    int buffer = 0;
    for (int tensor = 0; tensor < request->model.tensor_count; tensor++) {
        double ready_ns =
            forward_ns + (request->compute_ns - forward_ns) * request->model.tensors[tensor].ready;
        end += home_bytes(step, tensor);
        bool is_last = tensor + 1 == request->model.tensor_count;
        while (buffer < step->buffer_count &&
               ((uint64_t)(buffer + 1) * request->buffer_bytes <= end || is_last)) {
            bool whole = buffer + 1 < step->buffer_count;
            step->operations[buffer] =
                (struct sim_operation){.programs = whole ? step->whole : step->last,
                                       .priority = -buffer,
                                       .ready_ns = ready_ns + step->accelerators_ns};
            buffer++;
        }
    }
}

static enum shoal_status make_programs(struct step *step, uint64_t bytes, struct sim_row *row,
                                       struct sim_programs **out)
{
    sim_scene_count(step->scene, bytes);
    TRY(sim_scene_programs(step->scene, row, out));
    row->exact &= (*out)->exact;
    return SHOAL_OK;
}

static enum shoal_status step_init(struct sim_scene *scene, struct step *step, struct sim_row *row)
{
    const struct sim_request *request = scene->request;
    *step = (struct step){.scene = scene};
    for (int tensor = 0; tensor < request->model.tensor_count; tensor++)
        step->bytes += home_bytes(step, tensor);
    step->buffer_count = (int)((step->bytes + request->buffer_bytes - 1) / request->buffer_bytes);
    uint64_t last_bytes = step->bytes - (uint64_t)(step->buffer_count - 1) * request->buffer_bytes;
    row->exact = true;
    TRY(BASE_NEW_ARRAY(&step->operations, step->buffer_count, "the buffers"));
    TRY(make_programs(step, last_bytes, row, &step->last));
    step->accelerators_ns = sim_scene_accelerators_ns(scene);
    if (step->buffer_count > 1) {
        TRY(make_programs(step, request->buffer_bytes, row, &step->whole));
        step->accelerators_ns = sim_scene_accelerators_ns(scene);
    }
    fill_buffers(step);
    return SHOAL_OK;
}

static void step_release(struct step *step)
{
    sim_programs_free(step->whole);
    sim_programs_free(step->last);
    base_free(step->operations);
}

/* Rank 0's word, of a few bytes, goes to all others by one round among few, else by a tree. */
static double notice_ns(const struct sim_scene *scene)
{
    const struct sim_platform *platform = scene->platform;
    int ranks = schedule_rank_count(&scene->shape), rounds = ranks > 1;
    for (int reached = 2; ranks > WORD_RANKS_MAX && reached < ranks; reached *= 2)
        rounds++;
    return rounds *
           (platform->send.message_ns + platform->link_latency_ns + platform->receive.message_ns);
}

static enum shoal_status run_step(struct step *step, struct sim_row *row, double *end_ns)
{
    struct sim_run run = {.platform = step->scene->platform,
                          .operations = step->operations,
                          .operation_count = step->buffer_count,
                          .in_flight = step->scene->request->in_flight,
                          .notice_ns = notice_ns(step->scene),
                          .every_rank = step->scene->request->every_rank};
    TRY(sim_run(&run));
    row->events = run.event_count;
    row->every_rank = !run.one_host;
    *end_ns = run.end_ns + step->accelerators_ns;
    return SHOAL_OK;
}

/* From the end of one forward pass to the end of the next one: the backward pass, and a forward
 * pass which needs the tensors in the opposite order. Call after run_step. */
static double overlapped_ns(const struct step *step)
{
    const struct sim_request *request = step->scene->request;
    const struct model_tensor *tensors = request->model.tensors;
    double forward_ns = FORWARD_SHARE * request->compute_ns, now_ns = request->compute_ns;
    uint64_t end = step->bytes;
    for (int tensor = request->model.tensor_count - 1; tensor >= 0; tensor--) {
        uint64_t begin = end - home_bytes(step, tensor);
        for (uint64_t b = begin / request->buffer_bytes; b * request->buffer_bytes < end; b++)
            now_ns = fmax(now_ns, step->operations[b].end_ns + step->accelerators_ns);
        now_ns +=
            forward_ns * (tensors[tensor].ready - (tensor > 0 ? tensors[tensor - 1].ready : 0));
        end = begin;
    }
    return now_ns - forward_ns;
}

/* The same buffers once more, all of them ready at the start. */
static enum shoal_status run_alone(struct step *step, struct sim_row *row)
{
    for (int i = 0; i < step->buffer_count; i++)
        step->operations[i].ready_ns = step->accelerators_ns;
    return run_step(step, row, &row->alone_ns);
}

static uint64_t count_messages(const struct step *step)
{
    uint64_t messages = step->last->messages_max;
    if (step->whole)
        messages += step->whole->messages_max * (uint64_t)(step->buffer_count - 1);
    return messages;
}

enum shoal_status sim_step_simulate(struct sim_scene *scene, struct sim_row *row)
{
    struct step step;
    double end_ns = 0, compute_ns = scene->request->compute_ns;
    enum shoal_status status = step_init(scene, &step, row);
    if (status == SHOAL_OK)
        status = run_step(&step, row, &end_ns);
    if (status == SHOAL_OK)
        row->overlapped_ns = overlapped_ns(&step);
    if (status == SHOAL_OK)
        status = run_alone(&step, row);
    if (status == SHOAL_OK) {
        sim_scene_count(scene, step.bytes);
        double bound_ns =
            sim_bound(scene->platform, &scene->shape) + 2 * sim_scene_accelerators_ns(scene);
        row->bound_ns = bound_ns > compute_ns ? bound_ns : compute_ns;
        row->time_ns = end_ns > compute_ns ? end_ns : compute_ns;
        row->exact |= row->every_rank;
        row->messages = count_messages(&step);
    }
    step_release(&step);
    return status;
}
