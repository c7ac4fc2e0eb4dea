/* SPDX-License-Identifier: Apache-2.0 */
/*
 * images.h: what a job's image is on this machine.
 *
 * images.conf, a file of rows (rows.h): a pattern of names, what such an image is, and variables
 * that its programs get.
 *
 *   *pytorch-training:2.*   python=/opt/torch/bin/python  OMP_NUM_THREADS=4
 *   *pytorch-training:*     python
 *   mine:*                  root=/images/mine
 *   *                       container
 *
 *   python[=PROGRAM]   a Python of this machine with Shoal's packages; it does what the public
 *                      framework images do. Without PROGRAM: the python3 beside this program, the
 *                      source tree's, or the first in PATH
 *   root=FOLDER        a folder that becomes the root: the program is `train` there
 *   container[=NAME]   an image, by default the one of that name, fetched with podman or docker,
 * and unpacked once; its programs run in this service's own instances
 *
 * The default, where there is no file: the names of the public framework images, and `python`, are
 * python; all others are container.
 */
#ifndef SHOAL_JOB_IMAGES_H
#define SHOAL_JOB_IMAGES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shoal.h"

enum job_image_kind { JOB_IMAGE_PYTHON, JOB_IMAGE_ROOT, JOB_IMAGE_CONTAINER };

struct job_images;

/* path NULL, or of a file that is not there: the default. `folder`: where unpacked images are kept.
 * SHOAL_ERR_FORMAT names file and line. */
enum shoal_status job_images_load(const char *path, const char *folder, struct job_images **out);
/* NULL is allowed. */
void job_images_free(struct job_images *images);

/* Whether an image of this name can be here: a row matches it, and what the row needs is installed
 * and answers. Quick, but that a container engine may take 5 s to answer; any thread.
 * SHOAL_ERR_ARGUMENT with the public service's words and what to do. */
enum shoal_status job_images_check(const struct job_images *images, const char *name);

/* An image that is ready on this machine. All is its own. */
struct job_software {
    enum job_image_kind kind;
    char *root;         /* NULL: the machine's */
    char *directory;    /* where its programs start; NULL: "/" */
    char **entrypoint;  /* what stands before the program, NULL behind; never NULL */
    char **environment; /* "NAME=VALUE", NULL behind; never NULL */
    char *python;       /* of JOB_IMAGE_PYTHON: its path, */
    char *prefix;       /* its sys.prefix */
    char *base_prefix;  /* and that of the Python that a virtual environment stands on */
    char *version;      /* "3.11" */
    char *libraries;    /* where it looks for packages, with colons */
    bool has_shoal, has_smdistributed; /* installed in it */
};

/* Makes it ready: a container is fetched and unpacked, a Python is asked where it is. Blocks, for a
 * container up to an hour; any thread. Errors have the public service's words in front;
 * SHOAL_ERR_ARGUMENT: a container could not be fetched. SHOAL_ERR_ABORTED: *is_cancelled (NULL:
 * nobody asks) came true. */
enum shoal_status job_images_prepare(struct job_images *images, const char *name,
                                     const atomic_bool *is_cancelled, struct job_software **out);
/* NULL is allowed. */
void job_software_free(struct job_software *software);

#endif
