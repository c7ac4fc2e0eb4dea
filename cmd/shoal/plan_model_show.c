/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model_show.c: a model's plan as text and as JSON. The tree is shown no further down than
 * where everything is on one device, and neighbours on the same device share a line.
 */
#include <inttypes.h>
#include <string.h>

#include "json_text.h"
#include "plan_model.h"
#include "scaled_text.h"

#define EVEN 1.05 /* the published assignment's largest load may be so many times the optimum */

const char *plan_model_method_name(enum shoal_plan_method method)
{
    switch (method) {
    case SHOAL_PLAN_PUBLISHED: return "published";
    case SHOAL_PLAN_BALANCED: return "balanced";
    case SHOAL_PLAN_MANUAL: return "manual";
    }
    return "?";
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_head(const struct plan_model *model, FILE *out)
{
    uint64_t parameters = 0, activations = 0, forward = 0, backward = 0;
    for (int i = 0; i < model->options.device_count; i++) {
        parameters += model->loads[i].parameter_bytes;
        activations += model->loads[i].activation_bytes;
        forward += model->loads[i].forward_ns;
        backward += model->loads[i].backward_ns;
    }
    fprintf(out, "%s, %d modules: %s of parameters; per microbatch %s of activations,\n",
            model->tree.name, model->tree.module_count, scaled_bytes_text((double)parameters),
            scaled_bytes_text((double)activations));
    fprintf(out, "  %s forward, %s backward\n", scaled_time_text((double)forward),
            scaled_time_text((double)backward));
}

static double above(double cost, double least)
{
    return least > 0 ? 100 * (cost / least - 1) : 0;
}

static void print_method(const struct plan_model *model, FILE *out)
{
    const struct shoal_plan_report *report = &model->report;
    fprintf(out, "  method     %s", plan_model_method_name(report->method));
    if (report->method == SHOAL_PLAN_BALANCED &&
        report->published_cost > EVEN * report->optimum_cost)
        fprintf(out, ": the published one's largest load is %.1f %% above the least possible",
                above(report->published_cost, report->optimum_cost));
    else if (report->method == SHOAL_PLAN_BALANCED)
        fprintf(out, ": the published one needs too much memory or leaves a device without work");
    fprintf(out,
            "\n  balance    largest load %.2f times the mean, %.1f %% above the least possible\n",
            report->largest_cost / report->mean_cost,
            above(report->largest_cost, report->optimum_cost));
    fprintf(out, "  crossings  %d per microbatch and direction, with %s\n", report->crossings,
            scaled_bytes_text((double)report->crossing_bytes));
}

static void print_loads(const struct plan_model *model, FILE *out)
{
    fprintf(out, "\n  device   load  parameters  activations      memory  forward  backward     "
                 "sends  visits  modules\n");
    for (int i = 0; i < model->options.device_count; i++) {
        const struct shoal_plan_load *load = &model->loads[i];
        fprintf(out, "  %6d  %4.1f%%  %10s  %11s  %10s  %7s  %8s  %8s  %6d  %7d\n", i,
                100 * load->cost, scaled_bytes_text((double)load->parameter_bytes),
                scaled_bytes_text((double)load->activation_bytes),
                scaled_bytes_text((double)load->memory_bytes),
                scaled_time_text((double)load->forward_ns),
                scaled_time_text((double)load->backward_ns),
                scaled_bytes_text((double)load->output_bytes), load->visits, load->module_count);
    }
}

/* One past the last module that is in this one: they stand directly behind it. */
static int end_of(const struct plan_model *model, int module)
{
    int at = module + 1;
    while (at < model->tree.module_count && model->tree.modules[at].parent >= module)
        at++;
    return at;
}

/* Which device has all of these; -1 if there are several. */
static int device_of_all(const struct plan_model *model, int from, int to)
{
    int device = shoal_plan_device(model->plan, from);
    for (int i = from + 1; i < to; i++)
        if (shoal_plan_device(model->plan, i) != device)
            return -1;
    return device;
}

static int depth_of(const char *name)
{
    int depth = 1;
    for (; *name; name++)
        depth += *name == '.';
    return depth;
}

static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool has_own(const struct shoal_plan_module *module)
{
    return module->parameter_bytes + module->activation_bytes + module->forward_ns +
               module->backward_ns >
           0;
}

/* The line for a module, or for it and its neighbours on the same device; returns what is next. */
static int print_modules(const struct plan_model *model, int from, FILE *out)
{
    const struct shoal_plan_module *modules = model->tree.modules;
    int end = end_of(model, from), device = device_of_all(model, from, end), last = from;
    int indent = 2 + 2 * depth_of(modules[from].name);
    if (device < 0) {
        fprintf(out, "%*s%s", indent, "", last_word(modules[from].name));
        if (has_own(&modules[from]))
            fprintf(out, ": its own work %d", shoal_plan_device(model->plan, from));
        fprintf(out, "\n");
        return from + 1;
    }
    while (end < model->tree.module_count && modules[end].parent == modules[from].parent &&
           device_of_all(model, end, end_of(model, end)) == device) {
        last = end;
        end = end_of(model, last);
    }
    fprintf(out, "%*s%s", indent, "", last_word(modules[from].name));
    if (last > from)
        fprintf(out, " to %s", last_word(modules[last].name));
    fprintf(out, ": %d\n", device);
    return end;
}

void plan_model_print_text(const struct plan_model *model, FILE *out)
{
    print_head(model, out);
    print_method(model, out);
    print_loads(model, out);
    if (!model->show_tree)
        return;
    fprintf(out, "\n  %s\n", model->tree.name);
    for (int i = 1; i < model->tree.module_count;)
        i = print_modules(model, i, out);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void print_device(const struct shoal_plan_load *load, int device, FILE *out)
{
    fprintf(out,
            "%s\n    {\"cost\": %.9g, \"parameter_bytes\": %" PRIu64
            ", \"activation_bytes\": %" PRIu64 ", \"memory_bytes\": %" PRIu64
            ", \"output_bytes\": %" PRIu64 ", \"forward_ns\": %" PRIu64
            ", \"backward_ns\": %" PRIu64 ", \"visits\": %d, \"modules\": %d}",
            device ? "," : "", load->cost, load->parameter_bytes, load->activation_bytes,
            load->memory_bytes, load->output_bytes, load->forward_ns, load->backward_ns,
            load->visits, load->module_count);
}

void plan_model_print_json(const struct plan_model *model, FILE *out)
{
    const struct shoal_plan_report *report = &model->report;
    fprintf(out, "  \"model\": ");
    json_print_string(model->tree.name, out);
    fprintf(out,
            ",\n  \"method\": \"%s\",\n  \"largest_cost\": %.9g,\n  \"mean_cost\": %.9g,\n"
            "  \"optimum_cost\": %.9g,\n  \"published_cost\": %.9g,\n  \"devices_used\": %d,\n"
            "  \"crossings\": %d,\n  \"crossing_bytes\": %" PRIu64 ",\n  \"devices\": [",
            plan_model_method_name(report->method), report->largest_cost, report->mean_cost,
            report->optimum_cost, report->published_cost, report->devices_used, report->crossings,
            report->crossing_bytes);
    for (int i = 0; i < model->options.device_count; i++)
        print_device(&model->loads[i], i, out);
    fprintf(out, "\n  ],\n  \"modules\": {");
    for (int i = 1; i < model->tree.module_count; i++) {
        fprintf(out, "%s\n    ", i > 1 ? "," : "");
        json_print_string(model->tree.modules[i].name, out);
        fprintf(out, ": %d", shoal_plan_device(model->plan, i));
    }
    fprintf(out, "\n  }");
}
