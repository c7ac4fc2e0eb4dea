/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c: see start.h. What is put in the description is copied, and belongs to it.
 *
 * In instances whose image is a Python of this machine, Shoal's own parts lie under /opt/shoal:
 * `bin` is the folder of this program, with its library in a build folder; `bindings` and `include`
 * are the source tree's, `python` the installed packages.
 */
#include "job/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/status.h"
#include "job/instance.h"
#include "job/packages.h"
#include "job/start_json.h"
#include "job/start_state.h"

#define SECRET_BYTES  32
#define TEXT_BYTES    8192
#define HOST_ADDRESS  "10.77.0.1"
#define HOME_FOLDER   "/root"
#define INTERNET_PORT 3128
#define SYSTEM_PATH   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* ---- JSON ---- */

/* A list or an object that may be there already; made if it is not. */
static enum shoal_status member(json_t *object, const char *name, json_t *otherwise, json_t **out)
{
    *out = json_object_get(object, name);
    if (*out != NULL) {
        json_decref(otherwise);
        return SHOAL_OK;
    }
    TRY(start_put(object, name, otherwise));
    *out = otherwise;
    return SHOAL_OK;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* ---- what the request says ---- */

int job_start_groups(const json_t *request, struct job_group groups[JOB_GROUPS_MAX],
                     const char *names[JOB_GROUPS_MAX])
{
    const json_t *resources = json_object_get(request, "ResourceConfig");
    const json_t *list = json_object_get(resources, "InstanceGroups");
    int count = (int)json_array_size(list);
    if (count > JOB_GROUPS_MAX)
        count = JOB_GROUPS_MAX;
    for (int i = 0; i < (count > 0 ? count : 1); i++) {
        const json_t *group = count > 0 ? json_array_get(list, (size_t)i) : resources;
        const char *type = text_of(group, "InstanceType");
        const char *name = count > 0 ? text_of(group, "InstanceGroupName") : JOB_GROUP_HOMOGENEOUS;
        groups[i].type = type != NULL ? type : "";
        groups[i].count = (int)json_integer_value(json_object_get(group, "InstanceCount"));
        if (names != NULL)
            names[i] = name != NULL ? name : "";
    }
    return count > 0 ? count : 1;
}

bool job_start_code(const json_t *request, char *uri, size_t bytes)
{
    const char *text = text_of(json_object_get(request, "HyperParameters"), START_SUBMIT_DIRECTORY);
    if (text == NULL)
        return false;
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_string(value))
        text = json_string_value(value);
    bool is_archive =
        strncmp(text, "s3://", 5) == 0 && snprintf(uri, bytes, "%s", text) < (int)bytes;
    json_decref(value);
    return is_archive;
}

/* ---- the program ---- */

static enum shoal_status add_words(json_t *program, const json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i++)
        TRY(start_add_text(program, json_string_value(json_array_get(words, i))));
    return SHOAL_OK;
}

/* As a container engine does: the request's entry point stands for the image's and takes the
 * image's arguments away, its arguments stand for `train`. */
static enum shoal_status add_own_program(const struct job_start_order *order, json_t *program)
{
    const json_t *algorithm = json_object_get(order->request, "AlgorithmSpecification");
    const json_t *entrypoint = json_object_get(algorithm, "ContainerEntrypoint");
    const json_t *arguments = json_object_get(algorithm, "ContainerArguments");
    char *const *own = order->software->entrypoint;
    for (int i = 0; json_array_size(entrypoint) == 0 && own[i] != NULL; i++)
        TRY(start_add_text(program, own[i]));
    TRY(add_words(program, entrypoint));
    TRY(add_words(program, arguments));
    if (json_array_size(entrypoint) == 0 && json_array_size(arguments) == 0)
        TRY(start_add_text(program, "train"));
    return SHOAL_OK;
}

static enum shoal_status add_python_options(const struct job_software *software, json_t *program)
{
    const char *const options[][2] = {{"--python", software->python},
                                      {"--base", software->base_prefix},
                                      {"--version", software->version},
                                      {"--libraries", software->libraries}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        TRY(start_add_text(program, options[i][0]));
        TRY(start_add_text(program, options[i][1]));
    }
    return SHOAL_OK;
}

static bool starts_train(const struct job_start_order *order)
{
    const json_t *algorithm = json_object_get(order->request, "AlgorithmSpecification");
    const json_t *arguments = json_object_get(algorithm, "ContainerArguments");
    const char *first = json_string_value(json_array_get(arguments, 0));
    return json_array_size(json_object_get(algorithm, "ContainerEntrypoint")) == 0 &&
           (first == NULL || (strcmp(first, "train") == 0 && json_array_size(arguments) == 1));
}

static enum shoal_status describe_program(const struct job_start_order *order, json_t *description)
{
    json_t *program = json_array();
    TRY(start_put(description, "program", program));
    if (order->software->kind == JOB_IMAGE_PYTHON) {
        TRY(start_add_text(program, START_PROGRAM));
        TRY(start_add_text(program, JOB_START_COMMAND));
        TRY(add_python_options(order->software, program));
        if (starts_train(order))
            return SHOAL_OK;
        TRY(start_add_text(program, "--"));
    }
    return add_own_program(order, program);
}

/* ---- files ---- */

static enum shoal_status add_mount(json_t *mounts, const char *from, const char *to,
                                   const char *access)
{
    return start_add(mounts,
                     json_pack("{s:s, s:s, s:s}", "from", from, "to", to, "access", access));
}

/* Places of the machine that an instance has of its own, so that what lies there is not seen. */
static bool is_covered(const char *path)
{
    static const char *const covered[] = {"/root/", "/home/", "/tmp/", "/var/tmp/", "/run/"};
    for (size_t i = 0; i < sizeof(covered) / sizeof(covered[0]); i++)
        if (strncmp(path, covered[i], strlen(covered[i])) == 0)
            return true;
    return false;
}

static enum shoal_status add_python(const struct job_software *software, json_t *mounts)
{
    if (is_covered(software->base_prefix))
        TRY(add_mount(mounts, software->base_prefix, software->base_prefix, "read-only"));
    if (is_covered(software->prefix) && strcmp(software->prefix, software->base_prefix) != 0)
        TRY(add_mount(mounts, software->prefix, software->prefix, "read-only"));
    return SHOAL_OK;
}

static enum shoal_status add_tree(const char *tree, json_t *mounts)
{
    static const char *const parts[] = {"bindings", "include"};
    char from[PACKAGES_PATH_BYTES + 16], to[64];
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(from, sizeof(from), "%s/%s", tree, parts[i]);
        snprintf(to, sizeof(to), START_SHOAL "/%s", parts[i]);
        TRY(add_mount(mounts, from, to, "read-only"));
    }
    return SHOAL_OK;
}

static enum shoal_status add_shoal(json_t *mounts)
{
    char path[PACKAGES_PATH_BYTES];
    if (!packages_program_folder(path, sizeof(path)))
        return base_error(SHOAL_ERR_SYSTEM, "this program's folder is not known");
    TRY(add_mount(mounts, path, START_SHOAL "/bin", "read-only"));
    if (packages_tree(path, sizeof(path)))
        return add_tree(path, mounts);
    if (packages_installed(path, sizeof(path)))
        return add_mount(mounts, path, START_SHOAL "/python", "read-only");
    return SHOAL_OK;
}

/* Bindings for PyTorch that this user has compiled, where Shoal came without: else each job would
 * compile its own, for a minute. What a job compiles stays its own. */
static enum shoal_status add_cache(json_t *mounts)
{
    char path[PACKAGES_PATH_BYTES];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool is_named = cache != NULL && cache[0] == '/';
    if (!is_named && (home == NULL || home[0] != '/'))
        return SHOAL_OK;
    int length = snprintf(path, sizeof(path), "%s%s/shoal", is_named ? cache : home,
                          is_named ? "" : "/.cache");
    if (length >= (int)sizeof(path) || access(path, R_OK | X_OK) != 0)
        return SHOAL_OK;
    return add_mount(mounts, path, HOME_FOLDER "/.cache/shoal", "own-copy");
}

static enum shoal_status describe_files(const struct job_start_order *order, json_t *description)
{
    const struct job_software *software = order->software;
    const char *directory = software->directory != NULL ? software->directory : "/";
    json_t *mounts;
    TRY(member(description, "mounts", json_array(), &mounts));
    if (software->kind == JOB_IMAGE_PYTHON) {
        TRY(add_python(software, mounts));
        TRY(add_shoal(mounts));
        TRY(add_cache(mounts));
        directory = JOB_START_DIRECTORY;
    } else {
        TRY(start_put_text(description, "root", software->root));
        TRY(start_put_text(description, "root_access", "own-copy"));
    }
    return start_put_text(description, "directory", directory);
}

/* ---- variables ---- */

static enum shoal_status put_python_paths(const struct job_software *software, json_t *variables)
{
    char text[TEXT_BYTES], folder[PACKAGES_PATH_BYTES];
    const char *packages = "";
    if (packages_tree(folder, sizeof(folder)))
        packages = START_SHOAL "/bindings/python:" START_SHOAL "/bindings/smdistributed";
    else if (packages_installed(folder, sizeof(folder)))
        packages = START_SHOAL "/python";
    if (*packages != '\0') {
        TRY(start_put_text(variables, "PYTHONPATH", packages));
        TRY(start_put_text(variables, "SHOAL_BUILD", START_SHOAL "/bin"));
    }
    snprintf(text, sizeof(text), "%.*s:" SYSTEM_PATH,
             (int)(strrchr(software->python, '/') - software->python), software->python);
    TRY(start_put_text(variables, "PATH", text));
    TRY(start_put_text(variables, "PYTHONUNBUFFERED", "1"));
    TRY(start_put_text(variables, "PIP_DISABLE_PIP_VERSION_CHECK", "1"));
    return start_put_text(variables, "PIP_ROOT_USER_ACTION", "ignore");
}

static enum shoal_status put_pairs(char *const *pairs, json_t *variables)
{
    char name[TEXT_BYTES];
    for (; *pairs != NULL; pairs++) {
        const char *equals = strchr(*pairs, '=');
        if (equals == NULL ||
            snprintf(name, sizeof(name), "%.*s", (int)(equals - *pairs), *pairs) >= TEXT_BYTES)
            continue;
        TRY(start_put_text(variables, name, equals + 1));
    }
    return SHOAL_OK;
}

static bool is_isolated(const struct job_start_order *order)
{
    return json_is_true(json_object_get(order->request, "EnableNetworkIsolation"));
}

/* The job's own hosts and the service are reached without the proxy. */
static enum shoal_status put_internet(const struct job_start_order *order, size_t host_count,
                                      json_t *variables)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    char text[TEXT_BYTES], url[64], host[JOB_HOST_BYTES];
    if (order->is_offline || is_isolated(order))
        return SHOAL_OK;
    snprintf(url, sizeof(url), "http://" HOST_ADDRESS ":%d", INTERNET_PORT);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        TRY(start_put_text(variables, names[i], url));
    size_t used = (size_t)snprintf(text, sizeof(text), "localhost,127.0.0.1,host," HOST_ADDRESS);
    for (size_t i = 0; i < host_count && used < sizeof(text); i++)
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, ",%s", job_host_name((int)i, host));
    TRY(start_put_text(variables, "no_proxy", text));
    return start_put_text(variables, "NO_PROXY", text);
}

/* What keeps the job's ranks apart from strangers. */
static enum shoal_status put_secret(json_t *variables)
{
    unsigned char bytes[SECRET_BYTES];
    char text[2 * SECRET_BYTES + 1];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return base_error(SHOAL_ERR_SYSTEM, "the kernel gives no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return start_put_text(variables, "SHOAL_SECRET", text);
}

static bool reaches_service(const struct job_start_order *order)
{
    return order->service != NULL && !is_isolated(order);
}

static enum shoal_status put_service(const struct job_start_order *order, json_t *variables)
{
    const char *port = strrchr(order->service, ':');
    char url[64];
    snprintf(url, sizeof(url), "http://" HOST_ADDRESS "%s", port != NULL ? port : "");
    TRY(start_put_text(variables, "AWS_ENDPOINT_URL", url));
    TRY(start_put_text(variables, "S3_ENDPOINT_URL", url));
    if (order->key == NULL)
        return SHOAL_OK;
    TRY(start_put_text(variables, "AWS_ACCESS_KEY_ID", order->key));
    return start_put_text(variables, "AWS_SECRET_ACCESS_KEY", order->secret);
}

static enum shoal_status describe_variables(const struct job_start_order *order,
                                            json_t *description)
{
    json_t *variables;
    const char *name;
    json_t *value;
    TRY(member(description, "environment", json_object(), &variables));
    TRY(start_put_text(variables, "PATH", SYSTEM_PATH));
    TRY(start_put_text(variables, "HOME", HOME_FOLDER));
    TRY(start_put_text(variables, "LANG", "C.UTF-8"));
    TRY(start_put_text(variables, "TRAINING_JOB_NAME", order->name));
    TRY(start_put_text(variables, "TRAINING_JOB_ARN", order->arn));
    TRY(start_put_text(variables, "AWS_REGION", order->region));
    TRY(start_put_text(variables, "AWS_DEFAULT_REGION", order->region));
    TRY(put_secret(variables));
    TRY(put_internet(order, json_array_size(json_object_get(description, "instances")), variables));
    if (reaches_service(order))
        TRY(put_service(order, variables));
    if (order->software->kind == JOB_IMAGE_PYTHON)
        TRY(put_python_paths(order->software, variables));
    TRY(put_pairs(order->software->environment, variables));
    json_object_foreach(json_object_get(order->request, "Environment"), name, value)
        TRY(start_put_text(variables, name, json_string_value(value)));
    return SHOAL_OK;
}

/* ---- shares ---- */

static enum shoal_status describe_share(const struct job_start_order *order, int index,
                                        json_t *instance)
{
    const struct job_share *share = &order->need->each[job_need_group(order->need, index)];
    uint64_t accelerators = job_need_accelerators(order->need, order->accelerators, index);
    json_t *limits, *list = json_array();
    TRY(start_put(instance, "accelerators", list));
    for (int i = 0; i < JOB_ACCELERATORS_MAX; i++)
        if ((accelerators >> i & 1) != 0)
            TRY(start_add(list, json_integer(i)));
    TRY(member(instance, "limits", json_object(), &limits));
    if (share->memory_limited)
        TRY(start_put(limits, "memory_bytes", json_integer((json_int_t)share->memory_bytes)));
    if (share->cores_limited)
        TRY(start_put(limits, "core_thousands", json_integer((json_int_t)share->core_thousands)));
    return SHOAL_OK;
}

static enum shoal_status describe_doors(const struct job_start_order *order, json_t *description)
{
    json_t *doors;
    TRY(member(description, "doors", json_array(), &doors));
    if (!order->is_offline && !is_isolated(order))
        TRY(start_add(doors, json_pack("{s:i, s:s}", "port", INTERNET_PORT, "to", JOB_INTERNET)));
    if (!reaches_service(order))
        return SHOAL_OK;
    const char *port = strrchr(order->service, ':');
    int number = 0;
    if (port == NULL || sscanf(port + 1, "%d", &number) != 1)
        return base_error(SHOAL_ERR_ARGUMENT, "the service's address '%s' has no port",
                          order->service);
    return start_add(doors, json_pack("{s:i, s:s}", "port", number, "to", order->directory));
}

enum shoal_status job_start_describe(const struct job_start_order *order, json_t *description)
{
    json_t *instances = json_object_get(description, "instances");
    TRY(describe_program(order, description));
    TRY(describe_files(order, description));
    TRY(describe_variables(order, description));
    TRY(describe_doors(order, description));
    for (size_t i = 0; i < json_array_size(instances); i++)
        TRY(describe_share(order, (int)i, json_array_get(instances, i)));
    return SHOAL_OK;
}
