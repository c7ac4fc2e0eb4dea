/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h: the few operations of STS and IAM that the SDKs call: who am I, is there such a role,
 * may it do that. There is one account, every role exists, and each may do everything.
 */
#ifndef SHOAL_HTTP_IDENTITY_H
#define SHOAL_HTTP_IDENTITY_H

#include "http/http.h"

#define HTTP_ACCOUNT   "000000000000"
#define HTTP_ROLE_NAME "shoal"
#define HTTP_ROLE_ARN  "arn:aws:iam::" HTTP_ACCOUNT ":role/" HTTP_ROLE_NAME

/* For HTTP_STS and HTTP_IAM; takes no user. */
extern const struct http_handler http_identity_handler;

#endif
