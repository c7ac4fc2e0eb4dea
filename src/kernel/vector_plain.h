/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_plain.h: part of a vector loaded and stored with memcpy, for instruction sets without
 * masked loads of bytes. The sizes of one and two elements are given to the compiler as constants,
 * which it turns into single moves: the smallest messages.
 */
#include <stddef.h>
#include <string.h>

INLINE void copy_part(void *to, const void *from, size_t bytes)
{
    switch (bytes) {
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    case 16: memcpy(to, from, 16); break;
    default: memcpy(to, from, bytes);
    }
}

INLINE vfull full_load_part(const char *from, size_t bytes)
{
    vfull value = {0};
    copy_part(&value, from, bytes);
    return value;
}

INLINE void full_store_part(char *to, vfull value, size_t bytes)
{
    copy_part(to, &value, bytes);
}

INLINE vhalf half_load_part(const char *from, size_t bytes)
{
    vhalf value = {0};
    copy_part(&value, from, bytes);
    return value;
}

INLINE void half_store_part(char *to, vhalf value, size_t bytes)
{
    copy_part(to, &value, bytes);
}
