/* SPDX-License-Identifier: Apache-2.0 */
/* sim_training_show.c: a simulated step of training as text and as JSON. */
#include "scaled_text.h"
#include "sim_training.h"

#define TERA  1e3 /* floating point operations per ns */
#define PARTS 6

struct part {
    const char *name, *text;
    double ns;
};

static void list_parts(const struct training_step *step, struct part parts[PARTS])
{
    const struct part all[PARTS] = {
        {"work", "work", step->work_ns},
        {"sums_within_layers", "sums within layers", step->sums_ns},
        {"bubble", "filling and draining the pipeline, transfers", step->bubble_ns},
        {"gradients", "sums of gradients that no work hides", step->gradients_ns},
        {"optimizer", "the optimizer", step->update_ns},
        {"parameters", "parameters to the other copies", step->gather_ns},
    };
    for (int i = 0; i < PARTS; i++)
        parts[i] = all[i];
}

static long batch_of(const struct training *training)
{
    return (long)training->data * training->microbatches * training->size;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_head(const struct training *training, const struct training_step *step, FILE *out)
{
    const struct sim_platform *platform = training->platform;
    fprintf(out,
            "%s on %d hosts of %d accelerators: %d copies x %d stages x %d slices\n"
            "%s, %d microbatches of %g samples in each copy, %g samples a step\n\n",
            training->tree.name, platform->host_count, platform->accelerators, training->data,
            training->pipeline, training->tensor, pipeline_row_name(&step->pipeline.rows[0]),
            training->microbatches, training->size * training->samples,
            (double)batch_of(training) * training->samples);
}

static void print_memory(const struct training *training, const struct training_step *step,
                         FILE *out)
{
    fprintf(out, "  %-12s %10s", "memory", scaled_bytes_text((double)step->memory_bytes));
    if (training->memory_bytes)
        fprintf(out, " of %s%s", scaled_bytes_text((double)training->memory_bytes),
                step->memory_bytes > training->memory_bytes ? ": it does not fit" : "");
    fprintf(out, ", on stage %d\n", step->fullest);
    fprintf(out, "  %-12s %10s state, %s state in shares, %s activations, %s besides\n", "",
            scaled_bytes_text((double)step->state_bytes),
            scaled_bytes_text((double)step->sharded_bytes),
            scaled_bytes_text((double)step->activation_bytes),
            scaled_bytes_text((double)training->working_bytes));
}

void training_print_text(const struct training *training, const struct training_step *step,
                         FILE *out)
{
    struct part parts[PARTS];
    list_parts(step, parts);
    print_head(training, step, out);
    fprintf(out, "  %-12s %10s\n", "step", scaled_time_text(step->step_ns));
    for (int i = 0; i < PARTS; i++)
        if (parts[i].ns > 0)
            fprintf(out, "  %-12s %10s  %4.1f %%  %s\n", "", scaled_time_text(parts[i].ns),
                    100 * parts[i].ns / step->step_ns, parts[i].text);
    fprintf(out, "  %-12s %10.4g samples/s", "throughput", step->samples_per_s);
    if (training->published > 0)
        fprintf(out, ", %.2f times the published %g", step->samples_per_s / training->published,
                training->published);
    fprintf(out, "\n  %-12s %10.1f TFLOP/s, %.1f %% of the peak; %.1f without work done again\n",
            "accelerator", step->done_per_ns / TERA,
            100 * step->done_per_ns / training->peak_per_ns, step->needed_per_ns / TERA);
    print_memory(training, step, out);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void print_json_head(const struct training *training, FILE *out)
{
    const struct sim_platform *platform = training->platform;
    fprintf(out,
            "  \"model\": \"%s\",\n  \"hosts\": %d,\n  \"accelerators_per_host\": %d,\n"
            "  \"copies\": %d,\n  \"stages\": %d,\n  \"slices\": %d,\n  \"pipeline\": \"%s\",\n"
            "  \"microbatches\": %d,\n  \"samples\": %g,\n  \"achieved\": %g,\n",
            training->tree.name, platform->host_count, platform->accelerators, training->data,
            training->pipeline, training->tensor,
            shoal_pipeline_name((enum shoal_pipeline_kind)training->kind), training->microbatches,
            (double)batch_of(training) * training->samples, training->achieved);
    if (training->published > 0)
        fprintf(out, "  \"published_samples_per_s\": %g,\n", training->published);
}

void training_print_json(const struct training *training, const struct training_step *step,
                         FILE *out)
{
    struct part parts[PARTS];
    list_parts(step, parts);
    fprintf(out, "{\n");
    print_json_head(training, out);
    fprintf(out,
            "  \"step_ns\": %.0f,\n  \"samples_per_s\": %.6g,\n  \"tflops\": %.6g,\n"
            "  \"tflops_without_work_done_again\": %.6g,\n  \"parts_ns\": {",
            step->step_ns, step->samples_per_s, step->done_per_ns / TERA,
            step->needed_per_ns / TERA);
    for (int i = 0; i < PARTS; i++)
        fprintf(out, "%s\"%s\": %.0f", i ? ", " : "", parts[i].name, parts[i].ns);
    fprintf(out,
            "},\n  \"memory\": {\"stage\": %d, \"bytes\": %llu, \"limit\": %llu, \"state\": %llu, "
            "\"shared_state\": %llu, \"activations\": %llu, \"working\": %llu}\n}\n",
            step->fullest, (unsigned long long)step->memory_bytes,
            (unsigned long long)training->memory_bytes, (unsigned long long)step->state_bytes,
            (unsigned long long)step->sharded_bytes, (unsigned long long)step->activation_bytes,
            (unsigned long long)training->working_bytes);
}
