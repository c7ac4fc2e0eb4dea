/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.c: a growing queue of bytes. Appending moves the rest to the front when that makes room. */
#include "launch/bytes.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define FIRST_CAPACITY_BYTES 4096

size_t launch_bytes_count(const struct launch_bytes *bytes)
{
    return bytes->end - bytes->begin;
}

const unsigned char *launch_bytes_front(const struct launch_bytes *bytes)
{
    return bytes->data == NULL ? NULL : bytes->data + bytes->begin;
}

enum shoal_status launch_bytes_room(struct launch_bytes *bytes, size_t count, unsigned char **out)
{
    size_t held = launch_bytes_count(bytes);
    if (bytes->capacity - bytes->end < count && held + count <= bytes->capacity / 2) {
        memmove(bytes->data, bytes->data + bytes->begin, held);
        bytes->begin = 0;
        bytes->end = held;
    }
    if (bytes->capacity - bytes->end < count) {
        size_t capacity = bytes->capacity > 0 ? bytes->capacity * 2 : FIRST_CAPACITY_BYTES;
        while (capacity < held + count)
            capacity *= 2;
        unsigned char *data = NULL;
        TRY(base_alloc(capacity, "a message buffer", (void **)&data));
        if (held > 0)
            memcpy(data, bytes->data + bytes->begin, held);
        base_free(bytes->data);
        *bytes = (struct launch_bytes){.data = data, .end = held, .capacity = capacity};
    }
    *out = bytes->data + bytes->end;
    return SHOAL_OK;
}

void launch_bytes_grew(struct launch_bytes *bytes, size_t count)
{
    bytes->end += count;
}

enum shoal_status launch_bytes_append(struct launch_bytes *bytes, const void *data, size_t count)
{
    unsigned char *room = NULL;
    TRY(launch_bytes_room(bytes, count, &room));
    if (count > 0)
        memcpy(room, data, count);
    bytes->end += count;
    return SHOAL_OK;
}

void launch_bytes_take(struct launch_bytes *bytes, size_t count)
{
    bytes->begin += count;
}

void launch_bytes_release(struct launch_bytes *bytes)
{
    base_free(bytes->data);
    *bytes = (struct launch_bytes){0};
}

enum shoal_status launch_put_number(struct launch_bytes *bytes, uint32_t number)
{
    unsigned char raw[4] = {number & 0xff, number >> 8 & 0xff, number >> 16 & 0xff, number >> 24};
    return launch_bytes_append(bytes, raw, sizeof(raw));
}

enum shoal_status launch_put_text(struct launch_bytes *bytes, const char *text)
{
    size_t length = strlen(text);
    TRY(launch_put_number(bytes, (uint32_t)length));
    return launch_bytes_append(bytes, text, length + 1);
}

enum shoal_status launch_put_texts(struct launch_bytes *bytes, const char *const *texts, int count)
{
    TRY(launch_put_number(bytes, (uint32_t)count));
    for (int i = 0; i < count; i++)
        TRY(launch_put_text(bytes, texts[i]));
    return SHOAL_OK;
}

enum shoal_status launch_read_number(struct launch_reader *reader, uint32_t *out)
{
    if (reader->left < 4)
        return base_error(SHOAL_ERR_FORMAT, "a message between launcher and agent is too short");
    const unsigned char *raw = reader->next;
    *out = raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
    reader->next += 4;
    reader->left -= 4;
    return SHOAL_OK;
}

enum shoal_status launch_read_text(struct launch_reader *reader, const char **out)
{
    uint32_t length = 0;
    TRY(launch_read_number(reader, &length));
    if (reader->left <= length || memchr(reader->next, '\0', length) != NULL ||
        reader->next[length] != '\0')
        return base_error(SHOAL_ERR_FORMAT, "a text between launcher and agent is broken");
    *out = (const char *)reader->next;
    reader->next += length + 1;
    reader->left -= length + 1;
    return SHOAL_OK;
}

enum shoal_status launch_read_texts(struct launch_reader *reader, const char ***texts, int *count)
{
    uint32_t number = 0;
    TRY(launch_read_number(reader, &number));
    if (number > reader->left / 5)
        return base_error(SHOAL_ERR_FORMAT, "a list between launcher and agent is too short");
    const char **list = NULL;
    TRY(base_alloc((number + 1) * sizeof(*list), "a list of texts", (void **)&list));
    for (uint32_t i = 0; i < number; i++) {
        enum shoal_status status = launch_read_text(reader, &list[i]);
        if (status != SHOAL_OK) {
            base_free(list);
            return status;
        }
    }
    *texts = list;
    *count = (int)number;
    return SHOAL_OK;
}
