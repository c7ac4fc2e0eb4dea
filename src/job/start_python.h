/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_python.h: an instance's own Python: the machine's, with a place for packages that belongs
 * to the instance.
 *
 * The machine's Python is read-only in an instance. So that scripts, requirements.txt and drivers
 * can install packages, with the interpreter and the pip that they find, an own virtual environment
 * is laid in front of it. It is made by hand, of a few small files: it has the machine's Python as
 * its interpreter and looks for packages in its own folder first and then in the machine's.
 */
#ifndef SHOAL_JOB_START_PYTHON_H
#define SHOAL_JOB_START_PYTHON_H

#include <jansson.h>

#include "shoal.h"

#define START_PYTHON_FOLDER  "/run/shoal/python"
#define START_PYTHON_PROGRAM START_PYTHON_FOLDER "/bin/python3"

struct start_python {        /* of the machine's, as images.h has it; borrowed */
    const char *program;     /* "/opt/venv/bin/python" */
    const char *base_prefix; /* "/usr" */
    const char *version;     /* "3.11" */
    const char *libraries;   /* "/opt/venv/lib/python3.11/site-packages" */
};

/* Makes it in `folder`, whose parent exists. `shoal`: this program, which gets a name in its folder
 * of programs. SHOAL_ERR_SYSTEM. */
enum shoal_status start_python_make(const struct start_python *python, const char *folder,
                                    const char *shoal);
/* Puts it in front of PATH and PYTHONPATH of an object of texts, with /opt/ml/code. */
enum shoal_status start_python_variables(const struct start_python *python, const char *folder,
                                         json_t *variables);

#endif
