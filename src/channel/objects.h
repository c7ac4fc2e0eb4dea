/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.h: which objects of S3 an input is, in what order, and who gets them.
 */
#ifndef SHOAL_CHANNEL_OBJECTS_H
#define SHOAL_CHANNEL_OBJECTS_H

#include "channel/input.h"

#define CHANNEL_MANIFEST_BYTES_MAX (INT64_C(64) << 20)

struct channel_object {
    struct channel_uri uri;
    const char *path; /* below the channel's folder */
    bool is_folder;   /* an empty object whose key ends in '/' */
};

typedef enum shoal_status (*channel_object_visit)(void *user, const struct channel_object *object);

/*
 * Calls `visit` for each object of an S3Prefix or a ManifestFile. An S3Prefix is all keys that
 * begin so. Their path: where the prefix is a folder ("data/train", "data/train/" and all keys lie
 * below "data/train/") what comes behind it; else what comes behind its last '/', so the whole key
 * of one object gives its name. A manifest's objects have the path that it gives behind its prefix.
 *
 * SHOAL_ERR_ARGUMENT: there is none, a manifest that is none, and for FastFile a prefix that is
 * neither file nor folder.
 */
enum shoal_status channel_objects_each(const struct channel_job *job,
                                       const struct channel_input *input,
                                       channel_object_visit visit, void *user);

/* The text for an input without objects, as the service has it. */
enum shoal_status channel_objects_missing(const struct channel_job *job,
                                          const struct channel_input *input);

/* The numbers 0 to count-1 in an order that depends on seed and epoch only; base_free. */
enum shoal_status channel_order_create(uint32_t count, uint64_t seed, uint64_t epoch,
                                       uint32_t **out);

#endif
