/* SPDX-License-Identifier: Apache-2.0 */
/*
 * container.h: images of container registries, fetched by a program that is installed and unpacked
 * once, as folders that instances have as their root.
 *
 * What runs is this service's instance, so that such jobs have the same host names, network, limits
 * and supervisor as all others; the program is only asked for the image's files and what it says
 * about its start.
 */
#ifndef SHOAL_JOB_CONTAINER_H
#define SHOAL_JOB_CONTAINER_H

#include <stdatomic.h>

#include "job/images_state.h"

/* "podman" or "docker", whichever is in PATH first; NULL: neither. */
const char *container_program(void);

/* Whether the program can work: docker needs its daemon. SHOAL_ERR_SYSTEM with its last words.
 * Blocks for 5 s at most. */
enum shoal_status container_check(void);

/* Fetches the image `name`, unless it is unpacked in `folder` already, and fills software's root,
 * directory, entry point and environment, with the row's variables behind the image's. Blocks.
 * SHOAL_ERR_SYSTEM with the program's last words. SHOAL_ERR_ABORTED: *is_cancelled (NULL: nobody
 * asks) came true. */
enum shoal_status container_prepare(const char *folder, const char *name, const struct image *image,
                                    const atomic_bool *is_cancelled, struct job_software *software);

#endif
