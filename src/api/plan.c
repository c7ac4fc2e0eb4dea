/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: the public face of the planner: checks pointers and sizes of structs. */
#include "api/handles.h"
#include "plan/partition.h"

static enum shoal_status check_options(const struct shoal_plan_options *options)
{
    if (!options)
        return base_error(SHOAL_ERR_ARGUMENT, "options is NULL: they have the list of modules");
    if (options->struct_bytes < sizeof(*options))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.struct_bytes is %zu, at least %zu expected: start from "
                          "SHOAL_PLAN_OPTIONS_INIT",
                          options->struct_bytes, sizeof(*options));
    if (options->module_bytes != sizeof(*options->modules))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "options.module_bytes is %zu, %zu expected: start from "
                          "SHOAL_PLAN_OPTIONS_INIT",
                          options->module_bytes, sizeof(*options->modules));
    if (!options->modules)
        return base_error(SHOAL_ERR_ARGUMENT, "options.modules is NULL");
    return SHOAL_OK;
}

static enum shoal_status create(const struct shoal_plan_options *options, shoal_plan_t *out)
{
    struct plan_partition *partition;
    if (!out)
        return base_error(SHOAL_ERR_ARGUMENT, "out is NULL");
    TRY(check_options(options));
    TRY(plan_partition_create(options, &partition));
    *out = (shoal_plan_t)partition;
    return SHOAL_OK;
}

enum shoal_status shoal_plan_create(const struct shoal_plan_options *options, shoal_plan_t *out)
{
    return api_end(NULL, create(options, out));
}

static struct plan_partition *inside(shoal_plan_t plan)
{
    return (struct plan_partition *)plan;
}

enum shoal_status shoal_plan_free(shoal_plan_t plan)
{
    plan_partition_free(inside(plan));
    return SHOAL_OK;
}

int shoal_plan_device(shoal_plan_t plan, int module)
{
    if (!plan || module < 0 || module >= inside(plan)->module_count)
        return -1;
    return inside(plan)->device_of[module];
}

static enum shoal_status check(shoal_plan_t plan)
{
    if (!plan)
        return base_error(SHOAL_ERR_ARGUMENT, "plan is NULL: make one with shoal_plan_create");
    return SHOAL_OK;
}

enum shoal_status shoal_plan_report(shoal_plan_t plan, struct shoal_plan_report *out)
{
    enum shoal_status status = check(plan);
    if (status == SHOAL_OK)
        status = api_give(out, &inside(plan)->report, sizeof(*out), sizeof(*out),
                          "SHOAL_PLAN_REPORT_INIT");
    return api_end(NULL, status);
}

enum shoal_status shoal_plan_load(shoal_plan_t plan, int device, struct shoal_plan_load *out)
{
    enum shoal_status status = check(plan);
    if (status == SHOAL_OK && (device < 0 || device >= inside(plan)->device_count))
        status = base_error(SHOAL_ERR_ARGUMENT, "device is %d: the plan has 0 to %d", device,
                            inside(plan)->device_count - 1);
    if (status == SHOAL_OK)
        status = api_give(out, &inside(plan)->loads[device], sizeof(*out), sizeof(*out),
                          "SHOAL_PLAN_LOAD_INIT");
    return api_end(NULL, status);
}
