/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.c: the run of all ranks in virtual time, event by event.
 *
 * There are three kinds of server, each doing one thing at a time: a host's outgoing port, its
 * incoming port, and a rank's processor. A message between hosts needs one port of each kind and
 * waits in a queue of its pair of hosts; when ports fall free, the waiting message that is earliest
 * in program order and finds both free goes next. Other work waits in its processor's queue, in
 * program order too. Ties are broken by rank, so the same schedules give the same times.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "coll/coll.h"
#include "coll/steps.h"

/* ---- a queue of numbers, the one with the least key first -------------------------------------
 */

struct entry {
    double key;
    uint32_t tie, number;
};

struct queue {
    struct entry *entries;
    uint32_t count, capacity;
};

static bool is_before(const struct entry *a, const struct entry *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->tie < b->tie;
}

static enum shoal_status queue_push(struct queue *queue, struct entry entry)
{
    if (queue->count == queue->capacity) {
        uint32_t capacity = queue->capacity ? 2 * queue->capacity : 16;
        struct entry *entries;
        TRY(BASE_NEW_ARRAY(&entries, capacity, "the prediction's queues"));
        if (queue->count)
            memcpy(entries, queue->entries, sizeof(*entries) * queue->count);
        base_free(queue->entries);
        queue->entries = entries;
        queue->capacity = capacity;
    }
    uint32_t at = queue->count++;
    for (; at > 0 && is_before(&entry, &queue->entries[(at - 1) / 2]); at = (at - 1) / 2)
        queue->entries[at] = queue->entries[(at - 1) / 2];
    queue->entries[at] = entry;
    return SHOAL_OK;
}

static struct entry queue_pop(struct queue *queue)
{
    struct entry first = queue->entries[0], last = queue->entries[--queue->count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= queue->count)
            break;
        if (child + 1 < queue->count &&
            is_before(&queue->entries[child + 1], &queue->entries[child]))
            child++;
        if (!is_before(&queue->entries[child], &last))
            break;
        queue->entries[at] = queue->entries[child];
        at = child;
    }
    if (queue->count)
        queue->entries[at] = last;
    return first;
}

/* ---- the model ----------------------------------------------------------------------------- */

struct host {
    bool sending, receiving;
    bool touched; /* a port fell free, or a message came: look what can start */
};

struct processor {
    bool busy;
    bool touched;
    struct queue work;
};

struct model {
    const struct coll_shape *shapes;
    const struct coll_links *links;
    struct steps steps;
    uint32_t *waits; /* [steps] that each still waits for */
    struct coll_step_time *times;
    int host_count;
    struct host *hosts;           /* [host_count] */
    struct queue *pairs;          /* [host_count * host_count] sends that wait for ports */
    struct processor *processors; /* [size] */
    struct queue events;          /* number: of the step, twice, plus 1 if only it ends */
    uint32_t event_count;
    double now_ns;
    int *touched; /* [host_count + size] hosts; ranks behind host_count */
    int touched_count;
};

static int host_of(const struct model *model, uint32_t number)
{
    return model->shapes[0].host_of[model->steps.rank_of[number]];
}

static double bytes_of(const struct model *model, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(&model->steps, number);
    return (double)schedule_span_bytes(step->at, model->shapes[0].elem_bytes);
}

/* The step's place in its rank's program, which ranks what waits. */
static struct entry in_program_order(const struct model *model, uint32_t number)
{
    int rank = model->steps.rank_of[number];
    return (struct entry){number - model->steps.first[rank], (uint32_t)rank, number};
}

enum event { EVENT_FREES, EVENT_ENDS }; /* frees its server and ends; only ends */

static enum shoal_status schedule_event(struct model *model, double at_ns, uint32_t number,
                                        enum event event)
{
    struct entry entry = {at_ns, model->event_count++, 2 * number + (event == EVENT_ENDS)};
    return queue_push(&model->events, entry);
}

/* Work came or a server fell free. What starts is decided when all that happens at this time has
 * happened, so that program order counts and not the order of events. */
static void touch_host(struct model *model, int host)
{
    if (!model->hosts[host].touched)
        model->touched[model->touched_count++] = host;
    model->hosts[host].touched = true;
}

static void touch_rank(struct model *model, int rank)
{
    if (!model->processors[rank].touched)
        model->touched[model->touched_count++] = model->host_count + rank;
    model->processors[rank].touched = true;
}

/* ---- servers ------------------------------------------------------------------------------- */

static enum shoal_status start_message(struct model *model, int from, int to)
{
    uint32_t send = queue_pop(&model->pairs[from * model->host_count + to]).number;
    uint32_t receive = model->steps.partner[send];
    model->hosts[from].sending = model->hosts[to].receiving = true;
    model->times[send].start_ns = model->times[receive].start_ns = model->now_ns;
    double sent_ns = model->now_ns + bytes_of(model, send) / model->links->network_bytes_per_ns;
    return schedule_event(model, sent_ns, send, EVENT_FREES);
}

/* Starts messages that leave, or enter, a host, as long as ports are free. */
static enum shoal_status use_port(struct model *model, int host, bool leaves)
{
    for (;;) {
        const struct entry *best = NULL;
        int best_other = -1;
        for (int other = 0; other < model->host_count; other++) {
            int from = leaves ? host : other, to = leaves ? other : host;
            const struct queue *queue = &model->pairs[from * model->host_count + to];
            if (queue->count == 0 || model->hosts[from].sending || model->hosts[to].receiving)
                continue;
            if (!best || is_before(&queue->entries[0], best)) {
                best = &queue->entries[0];
                best_other = other;
            }
        }
        if (best_other < 0)
            return SHOAL_OK;
        TRY(start_message(model, leaves ? host : best_other, leaves ? best_other : host));
    }
}

/* Processor time of a local step, or of a message within a host. */
static double work_ns(const struct model *model, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(&model->steps, number);
    if (step->kind != STEP_REDUCE)
        return bytes_of(model, number) / model->links->memory_bytes_per_ns;
    const struct schedule *schedule = model->steps.schedules[model->steps.rank_of[number]];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < step->source_count; i++)
        bytes += schedule_span_bytes(schedule->sources[step->source_first + i],
                                     model->shapes[0].elem_bytes);
    return (double)bytes / model->links->reduce_bytes_per_ns;
}

static enum shoal_status use_processor(struct model *model, int rank)
{
    struct processor *processor = &model->processors[rank];
    if (processor->busy || processor->work.count == 0)
        return SHOAL_OK;
    uint32_t number = queue_pop(&processor->work).number;
    processor->busy = true;
    model->times[number].start_ns = model->now_ns;
    if (coll_steps_at(&model->steps, number)->kind == STEP_RECV)
        model->times[model->steps.partner[number]].start_ns = model->now_ns;
    return schedule_event(model, model->now_ns + work_ns(model, number), number, EVENT_FREES);
}

/* ---- steps --------------------------------------------------------------------------------- */

static enum shoal_status make_ready(struct model *model, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(&model->steps, number);
    int rank = model->steps.rank_of[number];
    if (step->kind == STEP_REDUCE || step->kind == STEP_COPY) {
        touch_rank(model, rank);
        return queue_push(&model->processors[rank].work, in_program_order(model, number));
    }
    uint32_t partner = model->steps.partner[number];
    if (model->waits[partner] != 0)
        return SHOAL_OK;
    uint32_t send = step->kind == STEP_SEND ? number : partner;
    uint32_t receive = step->kind == STEP_SEND ? partner : number;
    int from = host_of(model, send), to = host_of(model, receive);
    if (from == to) {
        int receiver = model->steps.rank_of[receive];
        touch_rank(model, receiver);
        return queue_push(&model->processors[receiver].work, in_program_order(model, receive));
    }
    touch_host(model, from);
    return queue_push(&model->pairs[from * model->host_count + to], in_program_order(model, send));
}

static enum shoal_status end_step(struct model *model, uint32_t number)
{
    const struct schedule_step *step = coll_steps_at(&model->steps, number);
    model->times[number].end_ns = model->now_ns;
    for (uint32_t i = 0; i < step->after_count; i++) {
        uint32_t later = coll_steps_after(&model->steps, number, i);
        if (--model->waits[later] == 0)
            TRY(make_ready(model, later));
    }
    return SHOAL_OK;
}

/* A server is done: with a message between hosts, one within a host, or a copy or reduce. */
static enum shoal_status free_server(struct model *model, uint32_t number)
{
    enum step_kind kind = coll_steps_at(&model->steps, number)->kind;
    if (kind == STEP_SEND) {
        uint32_t receive = model->steps.partner[number];
        int from = host_of(model, number), to = host_of(model, receive);
        model->hosts[from].sending = model->hosts[to].receiving = false;
        TRY(schedule_event(model, model->now_ns + model->links->network_latency_ns, receive,
                           EVENT_ENDS));
        touch_host(model, from);
        touch_host(model, to);
        return end_step(model, number);
    }
    int rank = model->steps.rank_of[number];
    model->processors[rank].busy = false;
    touch_rank(model, rank);
    if (kind == STEP_RECV) {
        TRY(schedule_event(model, model->now_ns + model->links->memory_latency_ns, number,
                           EVENT_ENDS));
        number = model->steps.partner[number];
    }
    return end_step(model, number);
}

static enum shoal_status serve_touched(struct model *model)
{
    for (int i = 0; i < model->touched_count; i++) {
        int host = model->touched[i], rank = host - model->host_count;
        if (rank >= 0) {
            model->processors[rank].touched = false;
            TRY(use_processor(model, rank));
        } else {
            model->hosts[host].touched = false;
            TRY(use_port(model, host, true));
            TRY(use_port(model, host, false));
        }
    }
    model->touched_count = 0;
    return SHOAL_OK;
}

static enum shoal_status run_events(struct model *model)
{
    const struct steps *steps = &model->steps;
    for (uint32_t number = 0; number < steps->count; number++)
        model->waits[number] = coll_steps_at(steps, number)->wait_count + 1;
    /* All are held by one wait more until each has been looked at, so that none starts twice. */
    for (uint32_t number = 0; number < steps->count; number++)
        if (--model->waits[number] == 0)
            TRY(make_ready(model, number));
    TRY(serve_touched(model));
    while (model->events.count) {
        model->now_ns = model->events.entries[0].key;
        while (model->events.count && model->events.entries[0].key <= model->now_ns) {
            struct entry event = queue_pop(&model->events);
            if (event.number % 2)
                TRY(end_step(model, event.number / 2));
            else
                TRY(free_server(model, event.number / 2));
        }
        TRY(serve_touched(model));
    }
    for (uint32_t number = 0; number < steps->count; number++)
        if (model->waits[number] != 0)
            return base_error(SHOAL_ERR_INTERNAL, "deadlock: %s never starts",
                              coll_steps_text(steps, number));
    return SHOAL_OK;
}

static enum shoal_status model_run(struct model *model, struct schedule *const *schedules,
                                   struct coll_step_time *times)
{
    const struct coll_shape *shape = &model->shapes[0];
    size_t hosts = (size_t)shape->host_count;
    model->host_count = shape->host_count;
    TRY(coll_steps_init(schedules, shape->size, &model->steps));
    if (model->steps.count >= UINT32_MAX / 2)
        return base_error(SHOAL_ERR_LIMIT, "too many steps to predict their time");
    TRY(coll_steps_pair(&model->steps));
    TRY(BASE_NEW_ARRAY(&model->waits, model->steps.count, "the prediction"));
    TRY(BASE_NEW_ARRAY(&model->times, model->steps.count, "the prediction"));
    TRY(BASE_NEW_ARRAY(&model->hosts, hosts, "the prediction"));
    TRY(BASE_NEW_ARRAY(&model->pairs, hosts * hosts, "the prediction"));
    TRY(BASE_NEW_ARRAY(&model->processors, shape->size, "the prediction"));
    TRY(BASE_NEW_ARRAY(&model->touched, shape->host_count + shape->size, "the prediction"));
    TRY(run_events(model));
    if (times)
        memcpy(times, model->times, sizeof(*times) * model->steps.count);
    return SHOAL_OK;
}

static void model_release(struct model *model)
{
    for (int i = 0; model->pairs && i < model->host_count * model->host_count; i++)
        base_free(model->pairs[i].entries);
    for (int rank = 0; model->processors && rank < model->shapes[0].size; rank++)
        base_free(model->processors[rank].work.entries);
    base_free(model->pairs);
    base_free(model->processors);
    base_free(model->hosts);
    base_free(model->touched);
    base_free(model->times);
    base_free(model->waits);
    base_free(model->events.entries);
    coll_steps_release(&model->steps);
}

enum shoal_status coll_predict(const struct coll_shape *shapes, struct schedule *const *schedules,
                               const struct coll_links *links, struct coll_step_time *times,
                               double *out_ns)
{
    struct model model = {.shapes = shapes, .links = links};
    enum shoal_status status = model_run(&model, schedules, times);
    if (status == SHOAL_OK) {
        double last_ns = 0;
        for (uint32_t number = 0; number < model.steps.count; number++)
            if (model.times[number].end_ns > last_ns)
                last_ns = model.times[number].end_ns;
        *out_ns = last_ns;
    }
    model_release(&model);
    return status;
}
