/* SPDX-License-Identifier: Apache-2.0 */
/* sim_scale.c: the time of an operation by several algorithms on many numbers of hosts. */
#include "sim.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "kernel/kernel.h"

static bool has_blocks(enum coll_kind kind)
{
    return kind != COLL_ALLREDUCE && kind != COLL_REDUCE && kind != COLL_BROADCAST;
}

void sim_scene_count(struct sim_scene *scene, uint64_t bytes)
{
    const struct sim_request *request = scene->request;
    struct coll_shape *shape = &scene->shape;
    bool served = shape->kind == COLL_ALLREDUCE && bytes >= COLL_SERVED_BYTES_MIN;
    int hosts = scene->platform->host_count, rank_count = hosts * scene->platform->ranks_per_host;
    uint64_t ranks = (uint64_t)rank_count;
    uint64_t each = (bytes / shape->elem_bytes + ranks - 1) / ranks;
    shape->count = shape->kind == COLL_BARRIER ? 0 : has_blocks(shape->kind) ? each : each * ranks;
    shape->server_count = served ? scene->server_count : 0;
    shape->size = rank_count + shape->server_count;
    shape->host_count = hosts + shape->server_count;
    shape->segment_count = request->segment_bytes ? request->segment_bytes / shape->elem_bytes
                                                  : coll_segment_count(shape);
    if (shape->segment_count == 0)
        shape->segment_count = 1;
}

enum shoal_status sim_scene_init(const struct sim_request *request, int hosts,
                                 struct sim_scene *scene)
{
    *scene = (struct sim_scene){.request = request, .platform = request->platform};
    scene->server_count = request->servers == SIM_SERVERS_AS_MANY ? hosts : request->servers;
    TRY(sim_platform_resize(scene->platform, hosts, scene->server_count));
    int each = scene->platform->ranks_per_host, size = hosts * each;
    TRY(BASE_NEW_ARRAY(&scene->host_of, size + scene->server_count, "the ranks' hosts"));
    TRY(BASE_NEW_ARRAY(&scene->shares, size + scene->server_count, "the ranks' shares"));
    for (int rank = 0; rank < size; rank++)
        scene->host_of[rank] = rank / each;
    for (int server = 0; server < scene->server_count; server++)
        scene->host_of[size + server] = hosts + server;
    scene->shape = (struct coll_shape){.kind = request->kind,
                                       .elem_bytes = shoal_dtype_bytes(request->dtype),
                                       .wide_sums = kernel_dtype_is_half(request->dtype),
                                       .in_place = request->kind == COLL_BROADCAST,
                                       .host_of = scene->host_of};
    scene->shape.crowded =
        sim_is_crowded(scene->platform, hosts + scene->server_count, size + scene->server_count);
    sim_scene_count(scene, request->bytes);
    return SHOAL_OK;
}

void sim_scene_release(struct sim_scene *scene)
{
    base_free(scene->host_of);
    base_free(scene->shares);
}

static enum shoal_status choose(const struct sim_scene *scene, const char *asked,
                                const struct coll_algorithm **out)
{
    const struct sim_request *request = scene->request;
    char forced[128]; /* "allreduce:ring", so that ring must be one of allreduce's */
    snprintf(forced, sizeof(forced), "%s:%s", comm_kind_name(request->kind), asked);
    struct coll_choice choice = {
        .dtype = request->dtype, .reproducible = request->reproducible, .forced = forced};
    TRY(coll_choose(&scene->shape, &choice, out));
    if (strcmp(asked, "auto") != 0 && strcmp(asked, (*out)->name) != 0)
        return base_error(SHOAL_ERR_ARGUMENT, "%s cannot do this", asked);
    return SHOAL_OK;
}

enum shoal_status sim_scene_programs(struct sim_scene *scene, struct sim_row *row,
                                     struct sim_programs **out)
{
    const struct coll_algorithm *algorithm;
    struct coll_shape *shape = &scene->shape;
    TRY(choose(scene, row->asked, &algorithm));
    bool follows = algorithm->follows_shares && !scene->request->equal_shares &&
                   sim_shares(scene->platform, shape, scene->shares);
    shape->shares = follows ? scene->shares : NULL;
    TRY(sim_programs_create(algorithm, shape, true, out));
    row->algorithm = algorithm->name;
    row->servers = shape->server_count;
    row->follows_links = follows;
    return SHOAL_OK;
}

double sim_scene_accelerators_ns(const struct sim_scene *scene)
{
    const struct sim_platform *platform = scene->platform;
    double bytes = (double)scene->shape.count * (double)scene->shape.elem_bytes;
    double share = (platform->accelerators - 1.0) / platform->accelerators;
    return share * bytes / platform->accelerator_bytes_per_ns;
}

static enum shoal_status simulate(struct sim_scene *scene, struct sim_row *row)
{
    struct sim_programs *programs;
    TRY(sim_scene_programs(scene, row, &programs));
    struct sim_operation operation = {.programs = programs};
    struct sim_run run = {.platform = scene->platform,
                          .operations = &operation,
                          .operation_count = 1,
                          .in_flight = 1,
                          .every_rank = scene->request->every_rank};
    enum shoal_status status = sim_run(&run);
    row->messages = programs->messages_max;
    row->events = run.event_count;
    row->every_rank = !run.one_host;
    row->exact = row->every_rank || programs->exact;
    sim_programs_free(programs);
    if (status == SHOAL_OK)
        row->time_ns = run.end_ns + 2 * sim_scene_accelerators_ns(scene);
    return status;
}

/* What an algorithm cannot do, or what is too large to simulate, is a gap in the table. */
static enum shoal_status fill_row(struct sim_scene *scene, const char *asked, struct sim_row *row)
{
    *row = (struct sim_row){.hosts = scene->platform->host_count, .asked = asked};
    row->bound_ns =
        sim_bound(scene->platform, &scene->shape) + 2 * sim_scene_accelerators_ns(scene);
    enum shoal_status status =
        scene->request->model_name ? sim_step_simulate(scene, row) : simulate(scene, row);
    if (status != SHOAL_ERR_ARGUMENT && status != SHOAL_ERR_LIMIT)
        return status;
    snprintf(row->why_not, sizeof(row->why_not), "%s", base_error_text());
    return SHOAL_OK;
}

enum shoal_status sim_table_fill(const struct sim_request *request, struct sim_table *table)
{
    *table = (struct sim_table){.request = request};
    if (request->platform->accelerators > 1 && request->kind != COLL_ALLREDUCE)
        return base_error(SHOAL_ERR_ARGUMENT, "accelerators take part in allreduce only");
    TRY(BASE_NEW_ARRAY(&table->rows, request->algorithm_count * request->host_count, "the table"));
    table->row_count = request->algorithm_count * request->host_count;
    for (int i = 0; i < request->host_count; i++) {
        struct sim_scene scene;
        enum shoal_status status = sim_scene_init(request, request->hosts[i], &scene);
        for (int k = 0; status == SHOAL_OK && k < request->algorithm_count; k++)
            status =
                fill_row(&scene, request->algorithms[k], &table->rows[k * request->host_count + i]);
        sim_scene_release(&scene);
        TRY(status);
    }
    return SHOAL_OK;
}

void sim_table_release(struct sim_table *table)
{
    base_free(table->rows);
}
