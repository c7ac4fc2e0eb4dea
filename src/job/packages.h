/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packages.h: where this program's other parts lie on the machine: its library, its Python
 * packages, the Python to use. It may be in a build folder of the source tree, installed by
 * `make install`, or a wheel's command in a Python's folder of programs.
 */
#ifndef SHOAL_JOB_PACKAGES_H
#define SHOAL_JOB_PACKAGES_H

#include <stdbool.h>
#include <stddef.h>

#define PACKAGES_PATH_BYTES 4096

/* The folder of this program, without its name. False: unknown. */
bool packages_program_folder(char *path, size_t bytes);
/* The folder that holds `bindings` of the source tree, or "python" with the installed packages:
 * the parts that are not in a Python. False: there is none. */
bool packages_tree(char *path, size_t bytes);
bool packages_installed(char *path, size_t bytes);
/* The Python for images that name none: the one beside this program, the source tree's, or
 * "python3". */
void packages_python(char *path, size_t bytes);

#endif
