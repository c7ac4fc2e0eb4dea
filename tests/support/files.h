/* SPDX-License-Identifier: Apache-2.0 */
/* files.h: trees of files that tests make. */
#ifndef SHOAL_TESTS_FILES_H
#define SHOAL_TESTS_FILES_H

/* folder/name, and the folders above it within `folder`. Fails the test if it can't be made. */
void put_file(const char *folder, const char *name, const char *text);

#define TEXT_FILE_PATH_BYTES 40
/* A new file with that text; its path. The caller removes it. */
void make_text_file(const char *text, char path[TEXT_FILE_PATH_BYTES]);

#endif
