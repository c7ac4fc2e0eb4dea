/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_training_sums.c: the collectives of a training, each simulated by the schedules of its
 * allreduce, reduce_scatter or allgather on the ranks that take part: slices of a layer on a
 * platform of so many hosts whose links are those between a host's accelerators; copies of a part
 * on one whose links are their shares of the hosts' links.
 */
#include "base/memory.h"
#include "base/status.h"
#include "plan/placement.h"
#include "sim.h"
#include "sim_training.h"

#define IN_FLIGHT   2 /* buffers of gradients */
#define BUFFERS_MAX 65536

/* ---- where ranks lie ----------------------------------------------------------------------- */

static int host_of(const struct training *training, const struct plan_placement *placement,
                   int data, int stage, int slice)
{
    const int at[PLAN_AXES] = {[PLAN_DATA] = data, [PLAN_PIPELINE] = stage, [PLAN_TENSOR] = slice};
    return plan_placement_rank(placement, at) / training->platform->accelerators;
}

static enum shoal_status check_slices(const struct training *training,
                                      const struct plan_placement *placement)
{
    for (int stage = 0; stage < training->pipeline; stage++)
        for (int slice = 1; slice < training->tensor; slice++)
            if (host_of(training, placement, 0, stage, slice) !=
                host_of(training, placement, 0, stage, 0))
                return base_error(SHOAL_ERR_ARGUMENT,
                                  "the %d slices of a layer lie on different hosts: take fewer, or "
                                  "a placement whose last letter is T",
                                  training->tensor);
    return SHOAL_OK;
}

/* The copies of a part, in their order: runs of equal length on each host. */
static enum shoal_status count_group(const struct training *training,
                                     const struct plan_placement *placement,
                                     struct training_places *places)
{
    int run = 0, each = 0;
    for (int data = 0; data < training->data; data++) {
        run++;
        bool ends = data + 1 == training->data || host_of(training, placement, data + 1, 0, 0) !=
                                                      host_of(training, placement, data, 0, 0);
        if (!ends)
            continue;
        if (each > 0 && run != each)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "hosts have different numbers of the %d copies: take a layout that "
                              "divides the hosts evenly",
                              training->data);
        each = run;
        run = 0;
    }
    places->group_each = each;
    places->group_hosts = training->data / each;
    places->sharing = training->platform->accelerators / each;
    return SHOAL_OK;
}

/* How many ranks of the host of a stage send to the next stage on another host. */
static int count_crossing(const struct training *training, const struct plan_placement *placement,
                          int stage)
{
    int each = training->platform->accelerators, count = 0;
    int host = host_of(training, placement, 0, stage, 0);
    if (host_of(training, placement, 0, (stage + 1) % training->pipeline, 0) == host)
        return 0;
    for (int rank = host * each; rank < (host + 1) * each; rank++) {
        int data = plan_placement_at(placement, rank, PLAN_DATA);
        int next = (plan_placement_at(placement, rank, PLAN_PIPELINE) + 1) % training->pipeline;
        int slice = plan_placement_at(placement, rank, PLAN_TENSOR);
        count += host_of(training, placement, data, next, slice) != host;
    }
    return count;
}

enum shoal_status training_places_init(const struct training *training,
                                       struct training_places *places)
{
    struct plan_placement placement;
    struct shoal_placement wanted = {.struct_bytes = sizeof(wanted),
                                     .strategy = training->placement,
                                     .size = training->data * training->pipeline * training->tensor,
                                     .pipeline_degree = training->pipeline,
                                     .tensor_degree = training->tensor};
    *places = (struct training_places){0};
    TRY(plan_placement_init(&wanted, &placement));
    TRY(check_slices(training, &placement));
    TRY(count_group(training, &placement, places));
    TRY(BASE_NEW_ARRAY(&places->crossing, training->pipeline, "a training's stages"));
    for (int stage = 0; stage < training->pipeline; stage++)
        places->crossing[stage] = count_crossing(training, &placement, stage);
    return SHOAL_OK;
}

void training_places_release(struct training_places *places)
{
    base_free(places->crossing);
}

/* ---- collectives --------------------------------------------------------------------------- */

/* The slices of a layer: a host each, as far as the simulation is concerned. They write into each
 * other's memory, so messages cost no processor anything. */
static struct sim_platform slices_platform(const struct training *training)
{
    struct sim_platform platform = *training->platform;
    platform.host_count = training->tensor;
    platform.accelerators = 1;
    platform.link_bytes_per_ns = training->platform->accelerator_bytes_per_ns;
    platform.link_latency_ns = training->platform->local_latency_ns;
    platform.send = platform.receive = (struct sim_cost){0};
    return platform;
}

/* The copies of a part, with their share of each host's link. */
static struct sim_platform copies_platform(const struct training *training,
                                           const struct training_places *places)
{
    struct sim_platform platform = *training->platform;
    platform.host_count = places->group_hosts;
    platform.ranks_per_host = places->group_each;
    platform.accelerators = 1;
    platform.link_bytes_per_ns /= places->sharing;
    platform.copy_bytes_per_ns = training->platform->accelerator_bytes_per_ns;
    return platform;
}

static enum shoal_status make_programs(struct sim_platform *platform, enum coll_kind kind,
                                       uint64_t bytes, struct sim_programs **out)
{
    struct sim_request request = {.kind = kind, .platform = platform, .dtype = SHOAL_BF16};
    struct sim_row row = {.asked = "auto"};
    struct sim_scene scene;
    request.bytes = bytes;
    enum shoal_status status = sim_scene_init(&request, platform->host_count, &scene);
    if (status == SHOAL_OK)
        status = sim_scene_programs(&scene, &row, out);
    sim_scene_release(&scene);
    return status;
}

static enum shoal_status run(const struct sim_platform *platform, struct sim_operation *operations,
                             int count, double *end_ns)
{
    struct sim_run run = {.platform = platform,
                          .operations = operations,
                          .operation_count = count,
                          .in_flight = IN_FLIGHT};
    TRY(sim_run(&run));
    *end_ns = run.end_ns;
    return SHOAL_OK;
}

static enum shoal_status run_one(struct sim_platform *platform, enum coll_kind kind, uint64_t bytes,
                                 double *ns)
{
    struct sim_operation operation = {0};
    struct sim_programs *programs = NULL;
    TRY(make_programs(platform, kind, bytes, &programs));
    operation.programs = programs;
    enum shoal_status status = run(platform, &operation, 1, ns);
    sim_programs_free(programs);
    return status;
}

enum shoal_status training_slices_ns(const struct training *training, uint64_t bytes, double *ns)
{
    struct sim_platform platform = slices_platform(training);
    *ns = 0;
    return training->tensor == 1 ? SHOAL_OK : run_one(&platform, COLL_ALLREDUCE, bytes, ns);
}

enum shoal_status training_gather_ns(const struct training *training,
                                     const struct training_places *places, uint64_t bytes,
                                     double *ns)
{
    struct sim_platform platform = copies_platform(training, places);
    *ns = 0;
    return training->data == 1 ? SHOAL_OK : run_one(&platform, COLL_ALLGATHER, bytes, ns);
}

/* ---- gradients ----------------------------------------------------------------------------- */

static int buffer_count(const struct training *training, const struct training_gradients *gradients)
{
    uint64_t count = (gradients->bytes + training->buffer_bytes - 1) / training->buffer_bytes;
    return (int)(count > BUFFERS_MAX ? BUFFERS_MAX : count);
}

/* Equal buffers, which become ready one behind the other. */
static enum shoal_status fill(struct sim_platform *platform, enum coll_kind kind,
                              const struct training_gradients *gradients, int count,
                              struct sim_operation *operations, struct sim_programs **programs)
{
    double each_ns = (gradients->end_ns - gradients->begin_ns) / count;
    TRY(make_programs(platform, kind, gradients->bytes / (uint64_t)count, programs));
    for (int i = 0; i < count; i++)
        operations[i] = (struct sim_operation){.programs = *programs,
                                               .priority = 0,
                                               .ready_ns = gradients->begin_ns + each_ns * (i + 1)};
    return SHOAL_OK;
}

enum shoal_status training_gradients_ns(const struct training *training,
                                        const struct training_places *places,
                                        const struct training_gradients *gradients, int count,
                                        double *end_ns)
{
    enum coll_kind kind = training->sharded_copies > 0 ? COLL_REDUCE_SCATTER : COLL_ALLREDUCE;
    struct sim_platform platform = copies_platform(training, places);
    struct sim_programs **programs = NULL;
    struct sim_operation *operations = NULL;
    int all = 0, filled = 0;
    *end_ns = gradients[count - 1].end_ns;
    for (int i = 0; i < count; i++)
        all += buffer_count(training, &gradients[i]);
    if (training->data == 1 || all == 0)
        return SHOAL_OK;
    enum shoal_status status = BASE_NEW_ARRAY(&programs, count, "a training's gradients");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&operations, all, "a training's gradients");
    for (int i = 0; status == SHOAL_OK && i < count; i++) {
        int buffers = buffer_count(training, &gradients[i]);
        if (buffers > 0)
            status =
                fill(&platform, kind, &gradients[i], buffers, operations + filled, &programs[i]);
        filled += buffers;
    }
    if (status == SHOAL_OK)
        status = run(&platform, operations, all, end_ns);
    for (int i = 0; programs && i < count; i++)
        sim_programs_free(programs[i]);
    base_free(operations);
    base_free(programs);
    return status;
}
