/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_1f1b.c: one forward, one backward (PipeDream: generalized pipeline parallelism for DNN
 * training, 2019, with a flush after every step), and the same with several chunks on each stage
 * (Efficient large-scale language model training on GPU clusters using Megatron-LM, 2021).
 *
 * A stage begins with a number of forwards, then takes a forward and a backward by turns, and ends
 * with the backwards that are left. The nearer a stage is to the end of the model, the sooner its
 * first backward can begin, and the fewer forwards it needs to pass the time until then.
 *
 * With several chunks the microbatches go in rounds: each round passes the stage's first chunk,
 * then its second one, and so on, and backward the other way. A round has as many microbatches as
 * there are stages, or a few more where the microbatches don't divide, because the first microbatch
 * comes back to a stage after so many operations, and then the next chunk has to be free for it.
 * Fewer microbatches than stages are one round, in which it comes back later than that.
 */
#include "plan/pipeline_orders.h"

static int minimum(int a, int b)
{
    return a < b ? a : b;
}

void plan_order_1f1b(struct plan_pipeline *pipeline)
{
    int count = pipeline->microbatch_count;
    for (int stage = 0; stage < pipeline->stage_count; stage++) {
        struct shoal_pipeline_operation *out = pipeline->operations + pipeline->first[stage];
        int ahead = minimum(plan_pipeline_held_max(pipeline, stage), count), forward = 0;
        for (int backward = 0; backward < count; backward++) {
            for (; forward < minimum(backward + ahead, count); forward++)
                *out++ = (struct shoal_pipeline_operation){SHOAL_WORK_FORWARD, forward, stage};
            *out++ = (struct shoal_pipeline_operation){SHOAL_WORK_BACKWARD, backward, stage};
        }
    }
}

/* ---- several chunks -------------------------------------------------------------------------- */

/* Rounds differ by at most one microbatch; the longer ones come first. */
struct rounds {
    int count, least, longer;
};

static struct rounds rounds_of(const struct plan_pipeline *pipeline)
{
    int count = pipeline->microbatch_count / pipeline->stage_count;
    count = count > 0 ? count : 1;
    return (struct rounds){count, pipeline->microbatch_count / count,
                           pipeline->microbatch_count % count};
}

int plan_warm_up_interleaved_1f1b(const struct plan_pipeline *pipeline, int stage)
{
    struct rounds rounds = rounds_of(pipeline);
    int each = plan_pipeline_stage_chunk_count(pipeline, stage);
    int64_t until_first = (int64_t)(each - 1) * (rounds.least + (rounds.longer > 0)) +
                          2 * (pipeline->stage_count - 1 - stage);
    int64_t all = (int64_t)each * pipeline->microbatch_count;
    return (int)(until_first < all ? until_first : all);
}

/* Goes through a stage's passes in one direction, round by round, chunk by chunk. */
struct walk {
    struct rounds rounds;
    int each;               /* chunks */
    int round, turn, place; /* place: of the microbatch in the round */
    int before;             /* microbatches of earlier rounds */
};

static void walk_next(struct walk *walk, int *microbatch, int *turn)
{
    *microbatch = walk->before + walk->place;
    *turn = walk->turn;
    int length = walk->rounds.least + (walk->round < walk->rounds.longer);
    if (++walk->place < length)
        return;
    walk->place = 0;
    if (++walk->turn < walk->each)
        return;
    walk->turn = 0;
    walk->round++;
    walk->before += length;
}

static struct shoal_pipeline_operation next_forward(struct walk *walk, const int *chunks)
{
    int microbatch, turn;
    walk_next(walk, &microbatch, &turn);
    return (struct shoal_pipeline_operation){SHOAL_WORK_FORWARD, microbatch, chunks[turn]};
}

static struct shoal_pipeline_operation next_backward(struct walk *walk, const int *chunks)
{
    int microbatch, turn;
    walk_next(walk, &microbatch, &turn);
    return (struct shoal_pipeline_operation){SHOAL_WORK_BACKWARD, microbatch,
                                             chunks[walk->each - 1 - turn]};
}

void plan_order_interleaved_1f1b(struct plan_pipeline *pipeline)
{
    for (int stage = 0; stage < pipeline->stage_count; stage++) {
        struct shoal_pipeline_operation *out = pipeline->operations + pipeline->first[stage];
        const int *chunks = pipeline->stage_chunks + pipeline->first_chunk[stage];
        int each = plan_pipeline_stage_chunk_count(pipeline, stage);
        int count = each * pipeline->microbatch_count;
        int ahead = plan_warm_up_interleaved_1f1b(pipeline, stage) + 1, forward = 0;
        struct walk forwards = {.rounds = rounds_of(pipeline), .each = each}, backwards = forwards;
        for (int backward = 0; backward < count; backward++) {
            for (; forward < minimum(backward + ahead, count); forward++)
                *out++ = next_forward(&forwards, chunks);
            *out++ = next_backward(&backwards, chunks);
        }
    }
}
