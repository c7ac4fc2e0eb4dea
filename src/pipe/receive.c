/* SPDX-License-Identifier: Apache-2.0 */
/* receive.c: what a letter says, checked and carried out. */
#include <string.h>

#include "pipe/state.h"

static bool fits(const struct pipe_header *header, uint64_t body_bytes)
{
    if (header->count > MAIL_BODY_MAX || header->small_bytes > SHOAL_PIPE_BLOB_MAX)
        return false;
    uint64_t bytes = (uint64_t)header->count * sizeof(uint64_t) + header->small_bytes;
    if (header->type == LETTER_TASK)
        return header->count <= SHOAL_PIPE_NEEDS_MAX && bytes == body_bytes;
    if (header->type == LETTER_VALUE)
        return header->count <= SHOAL_PIPE_BUFFERS_MAX && bytes <= body_bytes;
    return header->type < LETTER_TYPE_COUNT && body_bytes == 0;
}

/* Of a rank that this one asked. */
static void take_answer(struct pipe *pipe, int from, const struct pipe_header *header)
{
    struct pipe_answer *answer = &pipe->answers[from];
    if (answer->asked != pipe->round)
        return;
    answer->came = true;
    answer->state = (struct pipe_state){.doing = (enum pipe_doing)header->doing,
                                        .kind = (enum shoal_pipe_kind)header->kind,
                                        .module = header->module,
                                        .microbatch = header->microbatch,
                                        .id = header->id,
                                        .for_ms = (int64_t)header->bytes};
}

static void answer(struct pipe *pipe, int to)
{
    struct pipe_state state = pipe_doing_now(pipe);
    struct pipe_header header = {.type = LETTER_TELL,
                                 .id = state.id,
                                 .kind = (int32_t)state.kind,
                                 .module = state.module,
                                 .microbatch = state.microbatch,
                                 .doing = state.doing,
                                 .bytes = (uint64_t)state.for_ms};
    pipe_post(pipe, to, header, NULL, 0);
}

static enum shoal_status route(struct pipe *pipe, int from, const struct pipe_header *header)
{
    struct pipe_value *value = NULL;
    if (header->count >= (uint32_t)pipe->group->size)
        return base_error(SHOAL_ERR_FORMAT, "a value shall go to rank %u", header->count);
    TRY(pipe_value_know(pipe, header->id, pipe_step_of(pipe, from), &value));
    return pipe_value_route(pipe, value, (int)header->count);
}

static enum shoal_status drop(struct pipe *pipe, int from, const struct pipe_header *header)
{
    struct pipe_value *value = NULL;
    TRY(pipe_value_know(pipe, header->id, pipe_step_of(pipe, from), &value));
    return pipe_value_end(pipe, value, header->count);
}

static enum shoal_status view_is_back(struct pipe *pipe, const struct pipe_header *header)
{
    struct pipe_value *value = pipe_value_find(pipe, header->id);
    if (!value || value->views_out == 0)
        return base_error(SHOAL_ERR_FORMAT, "a value came back that is not out");
    value->views_out--;
    pipe_value_tidy(pipe, value);
    return SHOAL_OK;
}

static enum shoal_status carry_out(struct pipe *pipe, int from, const struct pipe_header *header,
                                   const unsigned char *body, struct pipe_value **data)
{
    switch ((enum pipe_letter_type)header->type) {
    case LETTER_TASK: return pipe_task_arrives(pipe, from, header, body);
    case LETTER_ROUTE: return route(pipe, from, header);
    case LETTER_VALUE: return pipe_value_arrives(pipe, from, header, body, data);
    case LETTER_DROP: return drop(pipe, from, header);
    case LETTER_RETURN: return view_is_back(pipe, header);
    case LETTER_OVER: pipe_queue_over(&pipe->queue, header->microbatch); break;
    case LETTER_MARK: pipe->marks[from]++; break;
    case LETTER_ASK: answer(pipe, from); break;
    case LETTER_TELL: take_answer(pipe, from, header); break;
    case LETTER_BYE: pipe->byes++; break;
    case LETTER_TYPE_COUNT: break;
    }
    pipe_changed(pipe);
    return SHOAL_OK;
}

void pipe_receive(struct pipe *pipe, int from, const struct pipe_header *header,
                  const unsigned char *body, uint64_t body_bytes)
{
    struct pipe_value *data = NULL;
    char who[PIPE_TEXT_BYTES];
    pthread_mutex_lock(&pipe->lock);
    enum shoal_status status =
        fits(header, body_bytes)
            ? carry_out(pipe, from, header, body, &data)
            : base_error(SHOAL_ERR_FORMAT, "message %u can't be understood", header->type);
    pthread_mutex_unlock(&pipe->lock);
    if (status != SHOAL_OK)
        pipe_fail(pipe, status, "%s (on a message of %s)", base_error_text(),
                  pipe_rank_text(pipe, from, who));
    else if (data)
        pipe_mail_expect(pipe, from, header->tag, data);
}
