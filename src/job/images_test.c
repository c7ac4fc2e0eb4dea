/* SPDX-License-Identifier: Apache-2.0 */
/* images_test.c: files of images, and what a Python of this machine says of itself. */
#include "job/images.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "support/files.h"
#include "support/fuzz.h"

static const char framework[] =
    "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310";

/* Images of the folder are unpacked in it. */
static struct job_images *images_in(const char *folder, const char *text)
{
    char path[TEXT_FILE_PATH_BYTES];
    struct job_images *images = NULL;
    make_text_file(text, path);
    if (job_images_load(path, folder, &images) != SHOAL_OK)
        images = NULL;
    unlink(path);
    return images;
}

static struct job_images *images_of(const char *text)
{
    return images_in("/tmp/nowhere", text);
}

static void default_takes_framework_images(void **state)
{
    static const char *const names[] = {
        framework, "python", "python:3.11",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.1-gpu",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"};
    struct job_images *images;
    (void)state;
    assert_int_equal(job_images_load("/nowhere/images.conf", "/tmp/nowhere", &images), SHOAL_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(job_images_check(images, names[i]), SHOAL_OK);
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(job_images_check(images, "mine:1"), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "Cannot pull algorithm container. Either"));
    assert_non_null(strstr(base_error_text(), "install podman"));
    job_images_free(images);
}

static void rows_say_what_an_image_is(void **state)
{
    struct job_images *images = images_of("mine:* root=/usr A=1\n    B_2=two=2\n"
                                          "gone root=/nowhere/at/all\n"
                                          "broken python=/nowhere/python\n");
    struct job_software *software;
    (void)state;
    assert_non_null(images);
    assert_int_equal(job_images_prepare(images, "mine:latest", NULL, &software), SHOAL_OK);
    assert_int_equal(software->kind, JOB_IMAGE_ROOT);
    assert_string_equal(software->root, "/usr");
    assert_null(software->entrypoint[0]);
    assert_string_equal(software->environment[0], "A=1");
    assert_string_equal(software->environment[1], "B_2=two=2");
    assert_null(software->environment[2]);
    job_software_free(software);
    assert_int_equal(job_images_prepare(images, "gone", NULL, &software), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "there is no folder /nowhere/at/all"));
    assert_int_equal(job_images_check(images, "broken"), SHOAL_ERR_ARGUMENT);
    assert_int_equal(job_images_check(images, framework), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "no row of /tmp/shoal-text-"));
    job_images_free(images);
}

static void python_says_where_it_is(void **state)
{
    struct job_images *images = images_of("* python A=1\n");
    struct job_software *software;
    (void)state;
    assert_non_null(images);
    setenv("PATH", *state, 1);
    assert_int_equal(job_images_prepare(images, framework, NULL, &software), SHOAL_OK);
    assert_int_equal(software->kind, JOB_IMAGE_PYTHON);
    assert_int_equal(access(software->python, X_OK), 0);
    assert_int_equal(software->prefix[0], '/');
    assert_int_equal(software->base_prefix[0], '/');
    assert_true(software->version[0] == '3' && software->version[1] == '.');
    assert_non_null(strstr(software->libraries, "-packages"));
    assert_null(software->root);
    job_software_free(software);
    job_images_free(images);
}

static void program_that_is_no_python_is_named(void **state)
{
    struct job_images *images = images_of("true python=/bin/true\nfalse python=/bin/false\n");
    struct job_software *software;
    (void)state;
    assert_int_equal(job_images_prepare(images, "true", NULL, &software), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "/bin/true: a Python doesn't say its python"));
    assert_int_equal(job_images_prepare(images, "false", NULL, &software), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "/bin/false exited with code 1"));
    job_images_free(images);
}

static void wrong_rows_are_named(void **state)
{
    static const char *const wrong[] = {"a python\nb",          "a python\nb nothing",
                                        "a python\nb root",     "a python\nb root=here",
                                        "a python\nb python=",  "a python\nb python 1A=2",
                                        "a python\nb python A", "a python\nb container =x"};
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_null(images_of(wrong[i]));
        assert_non_null(strstr(base_error_text(), ":2: "));
    }
    assert_int_equal(base_memory_blocks(), 0);
}

/* ---- containers ---- */

struct engine {
    char folder[64], docker[80], started[80];
    struct job_images *images;
    atomic_bool is_cancelled;
    enum shoal_status status;
};

/* The only program in PATH is a docker of these lines. */
static void engine_make(struct engine *engine, const char *lines)
{
    *engine = (struct engine){.folder = "/tmp/shoal-engine-XXXXXX"};
    assert_non_null(mkdtemp(engine->folder));
    snprintf(engine->docker, sizeof(engine->docker), "%s/docker", engine->folder);
    snprintf(engine->started, sizeof(engine->started), "%s/started", engine->folder);
    FILE *file = fopen(engine->docker, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s", lines);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(engine->docker, 0700), 0);
    setenv("PATH", engine->folder, 1);
    engine->images = images_in(engine->folder, "* container\n");
    assert_non_null(engine->images);
}

static void engine_release(struct engine *engine)
{
    char lock[80];
    snprintf(lock, sizeof(lock), "%s/lock", engine->folder);
    unlink(lock);
    unlink(engine->started);
    unlink(engine->docker);
    assert_int_equal(rmdir(engine->folder), 0);
    job_images_free(engine->images);
}

static void engine_that_does_not_answer_is_a_refusal(void **state)
{
    struct engine engine;
    (void)state;
    engine_make(&engine, "echo 'Cannot connect to the daemon. Is it running?' >&2; exit 1\n");
    assert_int_equal(job_images_check(engine.images, "mine:1"), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "Cannot pull algorithm container. Either"));
    assert_non_null(strstr(base_error_text(), "docker exited with code 1: Cannot connect to the "
                                              "daemon. Is it running?"));
    engine_release(&engine);
}

static void *prepare_main(void *user)
{
    struct engine *engine = user;
    struct job_software *software;
    engine->status = job_images_prepare(engine->images, "mine:1", &engine->is_cancelled, &software);
    return NULL;
}

/* What was fetched from a folder is known by what the program says of it, not by the folder. */
static void image_of_a_folder_has_the_name_that_it_gets(void **state)
{
    struct engine engine;
    struct job_software *software;
    char root[96];
    (void)state;
    engine_make(&engine, "case $* in\n"
                         "version) ;;\n"
                         "'pull -q oci:/mine') echo took it; echo 0123456789abcdef;;\n"
                         "'image inspect 0123456789abcdef')\n"
                         "    echo '[{\"Id\": \"sha256:0123456789abcdef\"}]';;\n"
                         "*) exit 1;;\n"
                         "esac\n");
    snprintf(root, sizeof(root), "%s/0123456789abcdef", engine.folder);
    assert_int_equal(mkdir(root, 0700), 0); /* unpacked before */
    assert_int_equal(job_images_prepare(engine.images, "oci:/mine", NULL, &software), SHOAL_OK);
    assert_string_equal(software->root, root);
    job_software_free(software);
    assert_int_equal(rmdir(root), 0);
    engine_release(&engine);
}

/* The process that says in its file that it has begun. */
static pid_t started_await(const struct engine *engine)
{
    int pid = 0;
    while (pid == 0) {
        FILE *file = fopen(engine->started, "r");
        if (file != NULL && fscanf(file, "%d\n", &pid) != 1)
            pid = 0;
        if (file != NULL)
            fclose(file);
        base_sleep_ms(2);
    }
    return pid;
}

static void fetch_is_given_up_with_its_program(void **state)
{
    struct engine engine;
    pthread_t thread;
    (void)state;
    engine_make(&engine, "case $1 in\n"
                         "image) exit 1;;\n"
                         "pull) echo $$ > ${0%/*}/started; /bin/sleep 600;;\n"
                         "esac\n");
    assert_int_equal(pthread_create(&thread, NULL, prepare_main, &engine), 0);
    pid_t pid = started_await(&engine);
    assert_int_equal(kill(pid, 0), 0);
    atomic_store(&engine.is_cancelled, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(engine.status, SHOAL_ERR_ABORTED);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    engine_release(&engine);
}

/* Another service unpacks an image in the same folder. */
static void wait_for_another_fetch_is_given_up(void **state)
{
    struct engine engine;
    pthread_t thread;
    char path[80];
    (void)state;
    engine_make(&engine, "case $1 in\n"
                         "image) echo $$ > ${0%/*}/started\n"
                         "    echo '[{\"Id\": \"sha256:0123456789abcdef\"}]';;\n"
                         "esac\n");
    snprintf(path, sizeof(path), "%s/lock", engine.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pthread_create(&thread, NULL, prepare_main, &engine), 0);
    started_await(&engine);
    atomic_store(&engine.is_cancelled, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(engine.status, SHOAL_ERR_ABORTED);
    close(fd);
    engine_release(&engine);
}

static void take_any(void *user, char *text, size_t count, uint64_t round)
{
    struct job_images *images = images_of(text);
    (void)user;
    (void)count;
    (void)round;
    if (images != NULL)
        job_images_check(images, framework);
    job_images_free(images);
}

/* Files of any words: taken or refused, and nothing is lost. */
static void any_file_is_read_or_refused(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("*pytorch-training:2.*  python=/bin/true OMP_NUM_THREADS=4 # one\n"
                  "mine:* root=/usr A=1\n    B_2=two=2\n* container=example.com/a:1\n")};
    static const char *const words[] = {"python", "root=", "container=", "=", "A=1",
                                        "[a-",    "\n ",   "*",          NULL};
    struct fuzz fuzz = FUZZ(texts, words, 3000, .is_string = true, .is_alone = true);
    setenv("PATH", "/nowhere", 1);
    fuzz_run(&fuzz, take_any, NULL);
    setenv("PATH", *state, 1);
}

static int keep_path(void **state)
{
    *state = strdup(getenv("PATH"));
    return 0;
}

static int free_path(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_takes_framework_images),
        cmocka_unit_test(rows_say_what_an_image_is),
        cmocka_unit_test(python_says_where_it_is),
        cmocka_unit_test(program_that_is_no_python_is_named),
        cmocka_unit_test(wrong_rows_are_named),
        cmocka_unit_test(engine_that_does_not_answer_is_a_refusal),
        cmocka_unit_test(image_of_a_folder_has_the_name_that_it_gets),
        cmocka_unit_test(fetch_is_given_up_with_its_program),
        cmocka_unit_test(wait_for_another_fetch_is_given_up),
        cmocka_unit_test(any_file_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, keep_path, free_path);
}
