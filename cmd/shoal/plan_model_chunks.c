/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_chunks.c: pipelines over a model that was cut: each chunk's times and bytes. Schedules
 * with one chunk on each stage have the devices' loads. For others the model is cut into as many
 * pieces as there are chunks, unless modules were placed by hand: then into equal shares of what a
 * device has.
 *
 * Where a module shares parameters with an earlier one, a microbatch comes back to that one's
 * device. Modules that run one after the other on the same device are a visit then, and each visit
 * is a chunk, in the schedules that allow it.
 */
#include "base/memory.h"
#include "base/status.h"
#include "plan_model.h"

/* Of a backward pass, what makes the gradient of weights: half, as it is for matrix products. */
#define WEIGHT_SHARE 2

static bool is_placed(const struct shoal_plan_options *options)
{
    for (int i = 0; i < options->module_count; i++)
        if (options->modules[i].device >= 0)
            return true;
    return !options->auto_partition;
}

static void set_chunk(struct pipeline_chunk *chunk, const struct shoal_plan_load *load, int shares)
{
    uint64_t backward_ns = load->backward_ns / (uint64_t)shares;
    chunk->forward_ns = (int64_t)(load->forward_ns / (uint64_t)shares);
    chunk->backward_weight_ns = (int64_t)(backward_ns / WEIGHT_SHARE);
    chunk->backward_input_ns = (int64_t)backward_ns - chunk->backward_weight_ns;
    chunk->activation_bytes = load->activation_bytes / (uint64_t)shares;
    chunk->output_bytes = load->output_bytes;
}

static enum shoal_status set_chunks(shoal_plan_t plan, struct pipeline_chunk *chunks, int count)
{
    for (int i = 0; i < count; i++) {
        struct shoal_plan_load load = SHOAL_PLAN_LOAD_INIT;
        TRY(shoal_plan_load(plan, i, &load));
        set_chunk(&chunks[i], &load, 1);
    }
    return SHOAL_OK;
}

/* ---- visits -------------------------------------------------------------------------------- */

struct cut_model {
    const struct plan_model *model;
    struct pipeline_chunk *visits; /* [module_count], the first visit_count */
    int *devices;                  /* of these */
    int *latest;                   /* [module_count] of a parent: the last child so far; -1 */
    uint64_t *entering;            /* [module_count] bytes that come into a module */
    int visit_count;
};

static bool has_work(const struct shoal_plan_module *module)
{
    return module->parameter_bytes + module->activation_bytes + module->forward_ns +
               module->backward_ns >
           0;
}

static void add_module(struct pipeline_chunk *visit, const struct shoal_plan_module *module)
{
    int64_t weight_ns = (int64_t)(module->backward_ns / WEIGHT_SHARE);
    visit->forward_ns += (int64_t)module->forward_ns;
    visit->backward_weight_ns += weight_ns;
    visit->backward_input_ns += (int64_t)module->backward_ns - weight_ns;
    visit->activation_bytes += module->activation_bytes;
}

/* What comes into a module is what the one before it in the same parent returned, or else what came
 * into the parent. */
static uint64_t entering_bytes(struct cut_model *cut, int at)
{
    const struct shoal_plan_module *modules = cut->model->tree.modules;
    int parent = modules[at].parent, before = parent < 0 ? -1 : cut->latest[parent];
    cut->latest[at] = -1;
    if (parent < 0)
        return 0;
    cut->latest[parent] = at;
    return before < 0 ? cut->entering[parent] : modules[before].output_bytes;
}

/* Follows a microbatch forward. */
static void follow(struct cut_model *cut)
{
    const struct plan_model *model = cut->model;
    for (int at = 0; at < model->tree.module_count; at++) {
        int device = shoal_plan_device(model->plan, at);
        cut->entering[at] = entering_bytes(cut, at);
        if (!has_work(&model->tree.modules[at]))
            continue;
        if (cut->visit_count == 0 || cut->devices[cut->visit_count - 1] != device) {
            if (cut->visit_count > 0)
                cut->visits[cut->visit_count - 1].output_bytes = cut->entering[at];
            cut->devices[cut->visit_count++] = device;
        }
        add_module(&cut->visits[cut->visit_count - 1], &model->tree.modules[at]);
    }
}

/* Whether a microbatch comes back to a device, and to every one at least once. */
static bool comes_back(const struct cut_model *cut)
{
    int devices = cut->model->options.device_count;
    return cut->visit_count > devices && cut->model->report.devices_used == devices;
}

static enum shoal_status find_visits(struct cut_model *cut)
{
    const char *what = "a model's visits";
    int count = cut->model->tree.module_count;
    TRY(BASE_NEW_ARRAY(&cut->visits, count, what));
    TRY(BASE_NEW_ARRAY(&cut->devices, count, what));
    TRY(BASE_NEW_ARRAY(&cut->latest, count, what));
    TRY(BASE_NEW_ARRAY(&cut->entering, count, what));
    follow(cut);
    return SHOAL_OK;
}

static void release(struct cut_model *cut)
{
    base_free(cut->visits);
    base_free(cut->devices);
    base_free(cut->latest);
    base_free(cut->entering);
}

static enum shoal_status set_visits(const struct cut_model *cut, struct pipeline_chunk *chunks)
{
    for (int i = 0; i < cut->visit_count; i++) {
        int stage = chunks[i].stage;
        chunks[i] = cut->visits[i];
        chunks[i].stage = stage;
    }
    return SHOAL_OK;
}

/* ---- pipelines ----------------------------------------------------------------------------- */

static enum shoal_status fill(void *user, struct pipeline_chunk *chunks, int chunk_count)
{
    const struct cut_model *cut = user;
    const struct plan_model *model = cut->model;
    if (chunks[0].stage_share == 0)
        return set_visits(cut, chunks);
    struct shoal_plan_options options = model->options;
    shoal_plan_t plan;
    if (chunk_count == options.device_count)
        return set_chunks(model->plan, chunks, chunk_count);
    for (int i = 0; i < chunk_count && is_placed(&options); i++)
        set_chunk(&chunks[i], &model->loads[chunks[i].stage], chunks[i].stage_share);
    if (is_placed(&options))
        return SHOAL_OK;
    options.device_count = chunk_count;
    options.memory_limits = NULL; /* those are of devices, which have several chunks */
    options.in_flight = NULL;
    TRY(shoal_plan_create(&options, &plan));
    enum shoal_status status = set_chunks(plan, chunks, chunk_count);
    shoal_plan_free(plan);
    return status;
}

static enum shoal_status show(const struct pipeline_request *wanted, struct cut_model *cut,
                              const char *timeline, bool json)
{
    struct pipeline_request request = *wanted;
    struct pipeline_table made;
    request.stage_count = cut->model->options.device_count;
    request.fill = fill;
    request.user = cut;
    if (request.microbatch_count == 0)
        request.microbatch_count = 4 * request.stage_count;
    if (comes_back(cut)) {
        request.visits = cut->devices;
        request.visit_count = cut->visit_count;
    }
    enum shoal_status status = pipeline_table_build(&request, &made);
    if (status == SHOAL_OK && timeline)
        status = pipeline_write_svg(&made, timeline);
    if (status == SHOAL_OK && json) {
        printf(",\n");
        pipeline_print_json(&made, stdout);
    } else if (status == SHOAL_OK) {
        printf("\n  pipelines of %d microbatches\n", request.microbatch_count);
        pipeline_print_text(&made, stdout);
    }
    pipeline_table_release(&made);
    return status;
}

enum shoal_status plan_model_pipelines(struct plan_model *model,
                                       const struct pipeline_request *wanted, const char *timeline,
                                       bool json)
{
    struct cut_model cut = {.model = model};
    enum shoal_status status = find_visits(&cut);
    if (status == SHOAL_OK)
        status = show(wanted, &cut, timeline, json);
    release(&cut);
    return status;
}
