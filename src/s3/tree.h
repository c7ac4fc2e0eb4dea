/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: what lies below a prefix of a bucket, or below a folder of this machine, one after the
 * other in the order of the paths' bytes; so two trees can be compared in one pass, however large.
 * And folders that become objects.
 */
#ifndef SHOAL_S3_TREE_H
#define SHOAL_S3_TREE_H

#include "s3/client.h"

#define S3_TREE_DEPTH_MAX 64

struct s3_tree_entry {
    const char *path; /* below the prefix or folder; ends in '/' where it is a folder's marker */
    int64_t bytes, modified_ms;
    const char *etag; /* "" of files */
};

struct s3_tree;

/* All keys that begin with the prefix. Both are borrowed until it is closed. */
enum s3_code s3_tree_of_bucket(struct s3_client *client, const char *bucket, const char *prefix,
                               struct s3_tree **out);
/* All regular files below a folder, at paths that can be keys (INVALID_ARGUMENT names one that
 * can't); folders themselves are no entries, and what is neither is passed over. Links are followed
 * only if `follows`. */
enum s3_code s3_tree_of_folder(const char *path, bool follows, struct s3_tree **out);
/* The next one, valid until the following call; NULL at the end. */
enum s3_code s3_tree_next(struct s3_tree *tree, const struct s3_tree_entry **out);
/* NULL is allowed. */
void s3_tree_close(struct s3_tree *tree);

/* The regular files below a folder as objects: `prefix` and each one's path. Links are passed
 * over. */
enum s3_code s3_client_store_tree(struct s3_client *client, const char *folder, const char *bucket,
                                  const char *prefix, int64_t *count);

#endif
