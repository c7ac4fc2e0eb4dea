/* SPDX-License-Identifier: Apache-2.0 */
/* images_state.h: what images.c and container.c share; nobody else's. */
#ifndef SHOAL_JOB_IMAGES_STATE_H
#define SHOAL_JOB_IMAGES_STATE_H

#include "job/images.h"

struct image { /* a row of images.conf */
    enum job_image_kind kind;
    const char *value;            /* behind "python=" and the like; NULL: none */
    const char *const *variables; /* "NAME=VALUE", NULL behind */
};

#endif
