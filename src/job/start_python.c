/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_python.c: see start_python.h.
 *
 * pip takes what lies outside its own environment for somebody else's: it counts as installed, and
 * is never removed; a newer version goes in front of it. The machine's folders are added by
 * addsitedir, so that packages which are installed by .pth files there are found too.
 */
#include "job/start_python.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "job/start.h"

#define PATH_BYTES 4096

static enum shoal_status make_folder(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s%s", folder, name);
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder %s", path);
    return SHOAL_OK;
}

static enum shoal_status make_link(const char *folder, const char *name, const char *target)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/bin/%s", folder, name);
    if (symlink(target, path) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the link %s", path);
    return SHOAL_OK;
}

static enum shoal_status write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int error_number = errno;
    if (fd >= 0)
        close(fd);
    return good ? SHOAL_OK : base_error_errno(SHOAL_ERR_SYSTEM, error_number, "writing %s", path);
}

static enum shoal_status make_interpreter(const struct start_python *python, const char *folder)
{
    char text[PATH_BYTES * 2], path[PATH_BYTES], name[64];
    snprintf(text, sizeof(text), "home = %s/bin\ninclude-system-site-packages = false\n",
             python->base_prefix);
    snprintf(path, sizeof(path), "%s/pyvenv.cfg", folder);
    TRY(write_file(path, text, 0644));
    snprintf(name, sizeof(name), "python%s", python->version);
    snprintf(path, sizeof(path), "%s/bin/%s", python->base_prefix, name);
    TRY(make_link(folder, name, access(path, X_OK) == 0 ? path : python->program));
    TRY(make_link(folder, "python3", name));
    return make_link(folder, "python", name);
}

/* A line of a .pth file that begins with "import" is executed. */
static enum shoal_status make_libraries(const struct start_python *python, const char *folder)
{
    char text[PATH_BYTES * 2] = "", path[PATH_BYTES];
    size_t used = 0;
    snprintf(path, sizeof(path), "/lib/python%s", python->version);
    TRY(make_folder(folder, path));
    snprintf(path, sizeof(path), "/lib/python%s/site-packages", python->version);
    TRY(make_folder(folder, path));
    for (const char *at = python->libraries; *at != '\0'; at += *at == ':') {
        int length = (int)strcspn(at, ":");
        if (length > 0 && used < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     "import site; site.addsitedir('%.*s')\n", length, at);
        at += length;
    }
    snprintf(path, sizeof(path), "%s/lib/python%s/site-packages/machine.pth", folder,
             python->version);
    return write_file(path, text, 0644);
}

/* Programs of packages, for this interpreter: those of the machine name the machine's. */
static enum shoal_status make_program(const char *folder, const char *name, const char *module,
                                      const char *function)
{
    char path[PATH_BYTES], text[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/bin/%s", folder, name);
    snprintf(text, sizeof(text),
             "#!%s/bin/python3\nimport sys\nfrom %s import %s\nsys.exit(%s())\n", folder, module,
             function, function);
    return write_file(path, text, 0755);
}

static enum shoal_status make_programs(const struct start_python *python, const char *folder)
{
    static const char commands[] = "smdistributed.dataparallel.commands";
    char path[PATH_BYTES];
    TRY(make_program(folder, "pip", "pip._internal.cli.main", "main"));
    TRY(make_program(folder, "pip3", "pip._internal.cli.main", "main"));
    TRY(make_program(folder, "smddprun", commands, "smddprun"));
    TRY(make_program(folder, "smddpmprun", commands, "smddpmprun"));
    const char *slash = strrchr(python->program, '/');
    snprintf(path, sizeof(path), "%.*s/torchrun",
             slash != NULL ? (int)(slash - python->program) : 0, python->program);
    return access(path, X_OK) == 0
               ? make_program(folder, "torchrun", "torch.distributed.run", "main")
               : SHOAL_OK;
}

enum shoal_status start_python_make(const struct start_python *python, const char *folder,
                                    const char *shoal)
{
    static const char *const folders[] = {"", "/bin", "/lib"};
    if (strlen(folder) + strlen(python->base_prefix) + strlen(python->version) + 64 > PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "a Python's path is too long");
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        TRY(make_folder(folder, folders[i]));
    TRY(make_interpreter(python, folder));
    TRY(make_libraries(python, folder));
    TRY(make_programs(python, folder));
    return make_link(folder, "shoal", shoal);
}

/* ---- variables ---- */

/* Puts words in front of a list with colons. */
static enum shoal_status put_front(json_t *variables, const char *name, const char *front)
{
    const char *old = json_string_value(json_object_get(variables, name));
    json_t *text = json_sprintf("%s%s%s", front, old != NULL && *old != '\0' ? ":" : "",
                                old != NULL ? old : "");
    if (text == NULL || json_object_set_new(variables, name, text) != 0)
        return base_error(SHOAL_ERR_MEMORY, "no memory for the variable %s", name);
    return SHOAL_OK;
}

enum shoal_status start_python_variables(const struct start_python *python, const char *folder,
                                         json_t *variables)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof(text), "%s/bin", folder);
    TRY(put_front(variables, "PATH", text));
    snprintf(text, sizeof(text), JOB_START_DIRECTORY ":%s/lib/python%s/site-packages", folder,
             python->version);
    return put_front(variables, "PYTHONPATH", text);
}
