/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c: goes through all D x P x T with T within a host, cuts the model for each P and size of
 * microbatches with the memory that ranks have, and adds up times. The pipeline is 1F1B.
 */
#include "plan/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plan/partition.h"
#include "plan/tree.h"

#define SUMS_PER_LAYER 2 /* in each direction */
#define SIZES_MAX      64
#define IN_FLIGHT_MAX  4096 /* of a partition */

struct search {
    const struct plan_layout_request *request;
    struct shoal_plan_options model;   /* the request's, with nothing placed by hand: */
    struct shoal_plan_module *modules; /* [module_count] */
    bool *is_layer;                    /* [module_count] */
    bool has_layers;
    uint64_t *limits;      /* [PLAN_DEVICES_MAX] */
    int *in_flight;        /* [PLAN_DEVICES_MAX] */
    uint64_t *layer_bytes; /* [PLAN_DEVICES_MAX] that a device's layers return per microbatch */
    struct plan_layout *found;
    int count, capacity;
};

/* ---- layers -------------------------------------------------------------------------------- */

static bool is_numbered(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *word = dot ? dot + 1 : name;
    return *word && word[strspn(word, "0123456789")] == '\0';
}

/* Frameworks give the elements of a list of modules numbers as names. */
bool plan_layers_mark(const struct shoal_plan_options *model, bool *is_layer)
{
    bool *inside = is_layer, found = false; /* first: is a layer or in one */
    inside[0] = false;
    for (int i = 1; i < model->module_count; i++)
        inside[i] = inside[model->modules[i].parent] || is_numbered(model->modules[i].name);
    for (int i = model->module_count - 1; i > 0; i--)
        inside[i] = inside[i] && !inside[model->modules[i].parent];
    for (int i = 1; i < model->module_count; i++)
        found = found || is_layer[i];
    return found;
}

/* ---- time and memory ----------------------------------------------------------------------- */

struct shape {
    int data, pipeline, tensor, microbatches, size;
    double memory_weight;
};

static bool within_host(const struct search *search, int ranks)
{
    return ranks <= search->request->host_ranks;
}

/* A rank's share of its host's link, when all of them send at the same time. */
static double network_rate(const struct search *search)
{
    return search->request->network_bytes_per_ns / search->request->host_ranks;
}

static double tensor_ns(const struct search *search, const struct shape *shape, int stage)
{
    double bytes = 2.0 * SUMS_PER_LAYER * (double)search->layer_bytes[stage] * shape->size;
    return 2 * bytes * (shape->tensor - 1) / shape->tensor / search->request->host_bytes_per_ns;
}

/* From a stage to the next, in one direction. Neighbours in a pipeline are T ranks apart. */
static double transfer_ns(const struct search *search, const struct shape *shape,
                          const struct shoal_plan_load *load)
{
    double bytes = (double)load->output_bytes * shape->size / shape->tensor;
    if (within_host(search, shape->pipeline * shape->tensor))
        return bytes / search->request->host_bytes_per_ns;
    return bytes / network_rate(search) + search->request->network_latency_ns;
}

/* Ring or direct: each rank sends 2 (D-1) / D of its gradients. */
static double gradients_ns(const struct search *search, const struct shape *shape,
                           const struct shoal_plan_load *load)
{
    double bytes = (double)load->parameter_bytes / shape->tensor;
    double sent = 2 * bytes * (shape->data - 1) / shape->data;
    if (within_host(search, search->request->rank_count))
        return sent / search->request->host_bytes_per_ns;
    return sent / network_rate(search) +
           (shape->data > 1 ? 2 * search->request->network_latency_ns : 0);
}

/* 1F1B: the slowest stage works without a pause, but for the time in which the first microbatch
 * comes to it and the last one leaves it. Gradients are summed while the last microbatch goes back.
 */
static void time_layout(const struct search *search, const struct shape *shape,
                        const struct plan_partition *partition, struct plan_layout *out)
{
    double slowest = -1, all = 0, exposed = 0;
    for (int stage = 0; stage < shape->pipeline; stage++) {
        const struct shoal_plan_load *load = &partition->loads[stage];
        double scale = (double)shape->size / shape->tensor;
        double work = (double)(load->forward_ns + load->backward_ns) * scale;
        double sums = tensor_ns(search, shape, stage);
        double transfer = transfer_ns(search, shape, load);
        double hidden = (double)load->backward_ns * scale;
        double gradients = gradients_ns(search, shape, load);
        all += work + sums + 2 * transfer;
        exposed = gradients - hidden > exposed ? gradients - hidden : exposed;
        double period = work + sums > 2 * transfer ? work + sums : 2 * transfer;
        if (period > slowest) {
            slowest = period;
            out->compute_ns = work * shape->microbatches;
            out->tensor_ns = sums * shape->microbatches;
        }
        if (load->memory_bytes / (uint64_t)shape->tensor > out->memory_bytes)
            out->memory_bytes = load->memory_bytes / (uint64_t)shape->tensor;
    }
    out->data_ns = exposed;
    out->step_ns = slowest * (shape->microbatches - 1) + all + exposed;
    out->bubble_ns = out->step_ns - out->compute_ns - out->tensor_ns - exposed;
}

/* ---- the search ---------------------------------------------------------------------------- */

static void set_memory(struct search *search, const struct shape *shape)
{
    for (int stage = 0; stage < shape->pipeline; stage++) {
        int depth = shape->pipeline - stage;
        int kept = shape->microbatches < depth ? shape->microbatches : depth;
        search->limits[stage] = search->request->memory_bytes * (uint64_t)shape->tensor;
        search->in_flight[stage] = kept * shape->size;
        search->layer_bytes[stage] = 0;
    }
}

static enum shoal_status make_room(struct search *search)
{
    struct plan_layout *more = NULL;
    if (search->count < search->capacity)
        return SHOAL_OK;
    int capacity = search->capacity ? 2 * search->capacity : 64;
    TRY(BASE_NEW_ARRAY(&more, capacity, "layouts"));
    if (search->count > 0)
        memcpy(more, search->found, sizeof(*more) * (size_t)search->count);
    base_free(search->found);
    search->found = more;
    search->capacity = capacity;
    return SHOAL_OK;
}

static enum shoal_status try_shape(struct search *search, const struct shape *shape)
{
    struct shoal_plan_options options = search->model;
    struct plan_partition *partition;
    TRY(make_room(search));
    set_memory(search, shape);
    options.device_count = shape->pipeline;
    options.memory_weight = shape->memory_weight;
    options.memory_limits = search->limits;
    options.in_flight = search->in_flight;
    enum shoal_status status = plan_partition_create(&options, &partition);
    if (status == SHOAL_ERR_LIMIT) /* this one does not fit; another may */
        return SHOAL_OK;
    TRY(status);
    for (int i = 0; i < options.module_count; i++)
        if (search->is_layer[i])
            search->layer_bytes[partition->device_of[i]] += options.modules[i].output_bytes;
    if (partition->report.devices_used == shape->pipeline) {
        struct plan_layout *layout = &search->found[search->count++];
        *layout = (struct plan_layout){.data = shape->data,
                                       .pipeline = shape->pipeline,
                                       .tensor = shape->tensor,
                                       .microbatches = shape->microbatches,
                                       .microbatch_size = shape->size,
                                       .memory_weight = shape->memory_weight};
        time_layout(search, shape, partition, layout);
    }
    plan_partition_free(partition);
    return SHOAL_OK;
}

/* The model is cut by the weight that was asked for, and by time alone, which is faster where
 * memory is no matter beyond its limits. */
static enum shoal_status try_weights(struct search *search, struct shape shape)
{
    TRY(try_shape(search, &shape));
    if (shape.pipeline == 1 || shape.memory_weight == 0)
        return SHOAL_OK;
    shape.memory_weight = 0;
    return try_shape(search, &shape);
}

static enum shoal_status try_degrees(struct search *search, int pipeline, int tensor)
{
    int data = search->request->rank_count / pipeline / tensor;
    int batch = search->request->batch / data;
    if (search->request->batch % data != 0)
        return SHOAL_OK;
    for (int size = 1; size <= batch && size <= SIZES_MAX; size++)
        if (batch % size == 0 && pipeline * size <= IN_FLIGHT_MAX)
            TRY(try_weights(search, (struct shape){data, pipeline, tensor, batch / size, size,
                                                   search->model.memory_weight}));
    return SHOAL_OK;
}

static enum shoal_status try_all(struct search *search)
{
    const struct plan_layout_request *request = search->request;
    int most = request->rank_count < PLAN_DEVICES_MAX ? request->rank_count : PLAN_DEVICES_MAX;
    for (int tensor = 1; tensor <= request->host_ranks; tensor++) {
        if (request->host_ranks % tensor != 0 || (tensor > 1 && !search->has_layers))
            continue;
        for (int pipeline = 1; pipeline <= most; pipeline++)
            if (request->rank_count % (pipeline * tensor) == 0)
                TRY(try_degrees(search, pipeline, tensor));
    }
    return SHOAL_OK;
}

static int compare(const void *a, const void *b)
{
    const struct plan_layout *x = a, *y = b;
    if (x->step_ns != y->step_ns)
        return x->step_ns < y->step_ns ? -1 : 1;
    return x->memory_bytes < y->memory_bytes ? -1 : x->memory_bytes > y->memory_bytes;
}

static enum shoal_status check(const struct plan_layout_request *request)
{
    if (request->rank_count < 1 || request->rank_count > PLAN_RANKS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%d ranks: give 1 to %d", request->rank_count,
                          PLAN_RANKS_MAX);
    if (request->host_ranks < 1 || request->rank_count % request->host_ranks != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%d ranks can't be %d on each host",
                          request->rank_count, request->host_ranks);
    if (request->batch < 1 || request->batch > PLAN_BATCH_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "a batch of %d microbatches: give 1 to %d",
                          request->batch, PLAN_BATCH_MAX);
    if (request->memory_bytes > PLAN_QUANTITY_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%llu bytes of memory: give at most %llu",
                          (unsigned long long)request->memory_bytes,
                          (unsigned long long)PLAN_QUANTITY_MAX);
    if (!(request->host_bytes_per_ns > 0 && request->network_bytes_per_ns > 0 &&
          request->network_latency_ns >= 0))
        return base_error(SHOAL_ERR_ARGUMENT, "rates must be above 0, the latency 0 or more");
    return SHOAL_OK;
}

/* Where modules are placed by hand says nothing here: the number of stages is what is looked for.
 */
static enum shoal_status take_model(struct search *search)
{
    struct plan_tree tree;
    search->model = search->request->model;
    search->model.device_count = PLAN_DEVICES_MAX;
    search->model.auto_partition = 1;
    enum shoal_status status = plan_tree_init(&search->model, &tree); /* for its checks */
    plan_tree_release(&tree);
    TRY(status);
    TRY(BASE_NEW_ARRAY(&search->modules, search->model.module_count, "layouts"));
    for (int i = 0; i < search->model.module_count; i++) {
        search->modules[i] = search->model.modules[i];
        search->modules[i].device = -1;
    }
    search->model.modules = search->modules;
    return SHOAL_OK;
}

static enum shoal_status find_all(struct search *search)
{
    const struct plan_layout_request *request = search->request;
    TRY(take_model(search));
    TRY(BASE_NEW_ARRAY(&search->is_layer, search->model.module_count, "layouts"));
    TRY(BASE_NEW_ARRAY(&search->limits, PLAN_DEVICES_MAX, "layouts"));
    TRY(BASE_NEW_ARRAY(&search->in_flight, PLAN_DEVICES_MAX, "layouts"));
    TRY(BASE_NEW_ARRAY(&search->layer_bytes, PLAN_DEVICES_MAX, "layouts"));
    search->has_layers = plan_layers_mark(&search->model, search->is_layer);
    TRY(try_all(search));
    if (search->count == 0)
        return base_error(SHOAL_ERR_LIMIT,
                          "no layout of %d ranks fits into %llu bytes of memory each, with a batch "
                          "of %d microbatches: give more memory or ranks, or a batch that more "
                          "copies can share",
                          request->rank_count, (unsigned long long)request->memory_bytes,
                          request->batch);
    qsort(search->found, (size_t)search->count, sizeof(*search->found), compare);
    return SHOAL_OK;
}

enum shoal_status plan_layouts_create(const struct plan_layout_request *request,
                                      struct plan_layout **layouts, int *layout_count)
{
    struct search search = {.request = request};
    enum shoal_status status = check(request);
    if (status == SHOAL_OK)
        status = find_all(&search);
    base_free(search.layer_bytes);
    base_free(search.in_flight);
    base_free(search.limits);
    base_free(search.is_layer);
    base_free(search.modules);
    if (status != SHOAL_OK) {
        base_free(search.found);
        return status;
    }
    *layouts = search.found;
    *layout_count = search.count;
    return SHOAL_OK;
}
