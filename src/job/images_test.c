/* SPDX-License-Identifier: Apache-2.0 */
/* images_test.c: files of images, and what a Python of this machine says of itself. */
#include "job/images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"

static const char framework[] =
    "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310";

static struct job_images *images_of(const char *text)
{
    char path[] = "/tmp/shoal-images-XXXXXX";
    struct job_images *images = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    if (job_images_load(path, "/tmp/nowhere", &images) != SHOAL_OK)
        images = NULL;
    unlink(path);
    return images;
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
    assert_int_equal(job_images_prepare(images, "mine:latest", &software), SHOAL_OK);
    assert_int_equal(software->kind, JOB_IMAGE_ROOT);
    assert_string_equal(software->root, "/usr");
    assert_null(software->entrypoint[0]);
    assert_string_equal(software->environment[0], "A=1");
    assert_string_equal(software->environment[1], "B_2=two=2");
    assert_null(software->environment[2]);
    job_software_free(software);
    assert_int_equal(job_images_prepare(images, "gone", &software), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "there is no folder /nowhere/at/all"));
    assert_int_equal(job_images_check(images, "broken"), SHOAL_ERR_ARGUMENT);
    assert_int_equal(job_images_check(images, framework), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "no row of /tmp/shoal-images-"));
    job_images_free(images);
}

static void python_says_where_it_is(void **state)
{
    struct job_images *images = images_of("* python A=1\n");
    struct job_software *software;
    (void)state;
    assert_non_null(images);
    setenv("PATH", *state, 1);
    assert_int_equal(job_images_prepare(images, framework, &software), SHOAL_OK);
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
    assert_int_equal(job_images_prepare(images, "true", &software), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "/bin/true: a Python doesn't say its python"));
    assert_int_equal(job_images_prepare(images, "false", &software), SHOAL_ERR_SYSTEM);
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
    };
    return cmocka_run_group_tests(tests, keep_path, free_path);
}
