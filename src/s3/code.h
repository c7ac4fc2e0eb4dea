/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code.h: what can come of a request to S3, in S3's own words.
 *
 * Functions of this room return one of these rather than enum shoal_status: a client decides by the
 * code, so it must be exact. Whoever finds the error writes its text with s3_error(), as everywhere
 * by way of base_error(); base_error_text() has it.
 */
#ifndef SHOAL_S3_CODE_H
#define SHOAL_S3_CODE_H

#include "shoal.h"

/* Constant, S3's code, HTTP status, and the text where nobody wrote a better one. */
#define S3_CODES(X)                                                                                \
    X(S3_OK, "OK", 200, "all is well")                                                             \
    X(S3_NOT_MODIFIED, "NotModified", 304, "the object is as the caller has it")                   \
    X(S3_ACCESS_DENIED, "AccessDenied", 403, "Access Denied")                                      \
    X(S3_BAD_DIGEST, "BadDigest", 400,                                                             \
      "The Content-MD5 or checksum value that you specified did not match what the server "        \
      "received.")                                                                                 \
    X(S3_BUCKET_EXISTS, "BucketAlreadyExists", 409, "The requested bucket name is not available.") \
    X(S3_BUCKET_OWNED, "BucketAlreadyOwnedByYou", 409,                                             \
      "Your previous request to create the named bucket succeeded and you already own it.")        \
    X(S3_BUCKET_NOT_EMPTY, "BucketNotEmpty", 409, "The bucket you tried to delete is not empty.")  \
    X(S3_ENTITY_TOO_LARGE, "EntityTooLarge", 400,                                                  \
      "Your proposed upload exceeds the maximum allowed object size.")                             \
    X(S3_ENTITY_TOO_SMALL, "EntityTooSmall", 400,                                                  \
      "Your proposed upload is smaller than the minimum allowed object size.")                     \
    X(S3_INCOMPLETE_BODY, "IncompleteBody", 400,                                                   \
      "You did not provide the number of bytes specified by the Content-Length HTTP header.")      \
    X(S3_INTERNAL_ERROR, "InternalError", 500, "We encountered an internal error.")                \
    X(S3_INVALID_ARGUMENT, "InvalidArgument", 400, "Invalid Argument")                             \
    X(S3_INVALID_BUCKET_NAME, "InvalidBucketName", 400, "The specified bucket is not valid.")      \
    X(S3_INVALID_DIGEST, "InvalidDigest", 400, "The Content-MD5 you specified is not valid.")      \
    X(S3_INVALID_PART, "InvalidPart", 400,                                                         \
      "One or more of the specified parts could not be found. The part may not have been "         \
      "uploaded, or the specified entity tag may not match the part's entity tag.")                \
    X(S3_INVALID_PART_NUMBER, "InvalidPartNumber", 416,                                            \
      "The requested partnumber is not satisfiable.")                                              \
    X(S3_INVALID_PART_ORDER, "InvalidPartOrder", 400,                                              \
      "The list of parts was not in ascending order. The parts list must be specified in order "   \
      "by part number.")                                                                           \
    X(S3_INVALID_RANGE, "InvalidRange", 416, "The requested range is not satisfiable")             \
    X(S3_INVALID_REQUEST, "InvalidRequest", 400, "Invalid Request")                                \
    X(S3_INVALID_STORAGE_CLASS, "InvalidStorageClass", 400,                                        \
      "The storage class you specified is not valid")                                              \
    X(S3_INVALID_TAG, "InvalidTag", 400, "The tag provided was not a valid tag.")                  \
    X(S3_KEY_TOO_LONG, "KeyTooLongError", 400, "Your key is too long")                             \
    X(S3_MALFORMED_XML, "MalformedXML", 400,                                                       \
      "The XML you provided was not well-formed or did not validate against our published "        \
      "schema")                                                                                    \
    X(S3_METADATA_TOO_LARGE, "MetadataTooLarge", 400,                                              \
      "Your metadata headers exceed the maximum allowed metadata size")                            \
    X(S3_METHOD_NOT_ALLOWED, "MethodNotAllowed", 405,                                              \
      "The specified method is not allowed against this resource.")                                \
    X(S3_MISSING_LENGTH, "MissingContentLength", 411,                                              \
      "You must provide the Content-Length HTTP header.")                                          \
    X(S3_NO_SUCH_BUCKET, "NoSuchBucket", 404, "The specified bucket does not exist")               \
    X(S3_NO_SUCH_KEY, "NoSuchKey", 404, "The specified key does not exist.")                       \
    X(S3_NO_SUCH_UPLOAD, "NoSuchUpload", 404,                                                      \
      "The specified upload does not exist. The upload ID may be invalid, or the upload may have " \
      "been aborted or completed.")                                                                \
    X(S3_NOT_IMPLEMENTED, "NotImplemented", 501,                                                   \
      "A header or operation you provided is not implemented here.")                               \
    X(S3_OPERATION_ABORTED, "OperationAborted", 409,                                               \
      "A conflicting conditional operation is currently in progress against this resource. "       \
      "Please try again.")                                                                         \
    X(S3_PRECONDITION_FAILED, "PreconditionFailed", 412,                                           \
      "At least one of the pre-conditions you specified did not hold")                             \
    X(S3_SLOW_DOWN, "SlowDown", 503, "Please reduce your request rate.")                           \
    X(S3_STORAGE_FULL, "StorageFull", 507, "The disk of the server is full.")

#define S3_CODE_CONSTANT(constant, name, status, text) constant,
enum s3_code { S3_CODES(S3_CODE_CONSTANT) S3_CODE_COUNT };
#undef S3_CODE_CONSTANT

/* "NoSuchKey". */
const char *s3_code_name(enum s3_code code);
/* 404. */
int s3_code_status(enum s3_code code);
/* S3's own sentence. */
const char *s3_code_text(enum s3_code code);

/* Sets the thread's error text, S3's own sentence where format is NULL, and returns the code. */
enum s3_code s3_error(enum s3_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A system call failed: S3_STORAGE_FULL where the disk or a quota is full, else S3_INTERNAL_ERROR.
 */
enum s3_code s3_error_errno(int error_number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What other rooms' functions return; keeps their text. SLOW_DOWN for want of memory. */
enum s3_code s3_from_status(enum shoal_status status);

/* Passes a failure on. */
#define S3_TRY(call)                     \
    do {                                 \
        enum s3_code try_code_ = (call); \
        if (try_code_ != S3_OK)          \
            return try_code_;            \
    } while (0)

#endif
