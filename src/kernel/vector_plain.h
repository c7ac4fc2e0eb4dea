/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector_plain.h: part of a vector loaded and stored with memcpy, for instruction sets without
 * masked loads of bytes.
 */
#include <stddef.h>
#include <string.h>

INLINE vfull full_load_part(const char *from, size_t bytes)
{
    vfull value = {0};
    memcpy(&value, from, bytes);
    return value;
}

INLINE void full_store_part(char *to, vfull value, size_t bytes)
{
    memcpy(to, &value, bytes);
}

INLINE vhalf half_load_part(const char *from, size_t bytes)
{
    vhalf value = {0};
    memcpy(&value, from, bytes);
    return value;
}

INLINE void half_store_part(char *to, vhalf value, size_t bytes)
{
    memcpy(to, &value, bytes);
}
