/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: frames between launcher and agent. */
#include "launch/message.h"

#include "base/status.h"

#define HEADER_BYTES 16

enum shoal_status launch_message_put_raw(struct launch_bytes *out, enum launch_message_type type,
                                         int rank, uint32_t value, const void *payload,
                                         size_t payload_bytes)
{
    if (payload_bytes > LAUNCH_PAYLOAD_BYTES_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "arguments and environment need %zu bytes; at most %u can be sent to an "
                          "agent",
                          payload_bytes, LAUNCH_PAYLOAD_BYTES_MAX);
    unsigned char *room = NULL; /* so that a frame is never left without its rest */
    TRY(launch_bytes_room(out, HEADER_BYTES + payload_bytes, &room));
    TRY(launch_put_number(out, (uint32_t)type));
    TRY(launch_put_number(out, (uint32_t)rank));
    TRY(launch_put_number(out, value));
    TRY(launch_put_number(out, (uint32_t)payload_bytes));
    return launch_bytes_append(out, payload, payload_bytes);
}

enum shoal_status launch_message_put(struct launch_bytes *out, enum launch_message_type type,
                                     int rank, uint32_t value, const struct launch_bytes *payload)
{
    if (payload == NULL)
        return launch_message_put_raw(out, type, rank, value, NULL, 0);
    return launch_message_put_raw(out, type, rank, value, launch_bytes_front(payload),
                                  launch_bytes_count(payload));
}

enum shoal_status launch_message_put_text(struct launch_bytes *out, enum launch_message_type type,
                                          int rank, uint32_t value, const char *text)
{
    struct launch_bytes payload = {0};
    enum shoal_status status = launch_put_text(&payload, text);
    if (status == SHOAL_OK)
        status = launch_message_put(out, type, rank, value, &payload);
    launch_bytes_release(&payload);
    return status;
}

enum shoal_status launch_message_take(struct launch_bytes *in, struct launch_message *out,
                                      bool *found)
{
    struct launch_reader reader = {launch_bytes_front(in), launch_bytes_count(in)};
    uint32_t type = 0, rank = 0, value = 0, bytes = 0;
    *found = false;
    if (reader.left < HEADER_BYTES)
        return SHOAL_OK;
    TRY(launch_read_number(&reader, &type));
    TRY(launch_read_number(&reader, &rank));
    TRY(launch_read_number(&reader, &value));
    TRY(launch_read_number(&reader, &bytes));
    if (type < LAUNCH_HELLO || type > LAUNCH_DONE || bytes > LAUNCH_PAYLOAD_BYTES_MAX)
        return base_error(SHOAL_ERR_FORMAT,
                          "launcher and agent do not understand each other (type %u, %u bytes)",
                          (unsigned)type, (unsigned)bytes);
    if (reader.left < bytes)
        return SHOAL_OK;
    *out = (struct launch_message){.type = (enum launch_message_type)type,
                                   .rank = (int)(int32_t)rank,
                                   .value = value,
                                   .payload = {reader.next, bytes}};
    launch_bytes_take(in, HEADER_BYTES + bytes);
    *found = true;
    return SHOAL_OK;
}
