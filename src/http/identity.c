/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.c: STS GetCallerIdentity, IAM GetRole and SimulatePrincipalPolicy, with replies in the
 * XML of the query protocol.
 *
 * The caller is an assumed role: the SDKs take such a caller's role for their jobs when the script
 * names none.
 */
#include "http/identity.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "http/text.h"

#define NAME_BYTES_MAX 64
#define ACTIONS_MAX    100
#define CREATED        "2024-01-01T00:00:00Z"

struct action {
    const char *name, *service, *version;
    enum shoal_status (*put)(struct http_request *request, struct http_text *out);
};

static enum shoal_status invalid(struct http_request *request, const char *what)
{
    return http_reply_error(request, 400, "ValidationError", "%s", what);
}

static enum shoal_status caller_put(struct http_request *request, struct http_text *out)
{
    const char *name = http_request_key_name(request), *id = http_request_key_id(request);
    http_text_put(out, "<Arn>arn:aws:sts::" HTTP_ACCOUNT ":assumed-role/" HTTP_ROLE_NAME "/");
    http_text_xml(out, name);
    http_text_put(out, "</Arn><UserId>");
    http_text_xml(out, id[0] != '\0' ? id : "ANONYMOUS");
    http_text_put(out, ":");
    http_text_xml(out, name);
    http_text_put(out, "</UserId>");
    http_text_element(out, "Account", HTTP_ACCOUNT);
    return SHOAL_OK;
}

static bool is_role_name(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+=,.@-";
    size_t length = strlen(name);
    return length >= 1 && length <= NAME_BYTES_MAX && strspn(name, allowed) == length;
}

static enum shoal_status role_put(struct http_request *request, struct http_text *out)
{
    /* {"Statement":[{"Effect":"Allow","Principal":{"Service":"sagemaker.amazonaws.com"},…}]} */
    static const char policy[] = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B"
                                 "%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%7B%22Service%22"
                                 "%3A%22sagemaker.amazonaws.com%22%7D%2C%22Action%22%3A%22sts%3A"
                                 "AssumeRole%22%7D%5D%7D";
    const char *name = http_body_form(request, "RoleName");
    if (name == NULL || !is_role_name(name))
        return invalid(request, "RoleName must have 1 to 64 characters of [A-Za-z0-9_+=,.@-]");
    http_text_put(out, "<Role><Path>/</Path>");
    http_text_element(out, "RoleName", name);
    http_text_put(out,
                  "<RoleId>AROASHOALLOCALROLE00</RoleId><Arn>arn:aws:iam::" HTTP_ACCOUNT ":role/");
    http_text_xml(out, name);
    http_text_put(out, "</Arn><CreateDate>" CREATED "</CreateDate>");
    http_text_element(out, "AssumeRolePolicyDocument", policy);
    http_text_put(out, "<MaxSessionDuration>3600</MaxSessionDuration></Role>");
    return SHOAL_OK;
}

static enum shoal_status simulation_put(struct http_request *request, struct http_text *out)
{
    if (http_body_form(request, "PolicySourceArn") == NULL ||
        http_body_form(request, "ActionNames.member.1") == NULL)
        return invalid(request, "PolicySourceArn and ActionNames are required");
    const char *resource = http_body_form(request, "ResourceArns.member.1");
    http_text_put(out, "<IsTruncated>false</IsTruncated><EvaluationResults>");
    for (int i = 1; i <= ACTIONS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "ActionNames.member.%d", i);
        const char *action = http_body_form(request, name);
        if (action == NULL)
            break;
        http_text_put(out, "<member>");
        http_text_element(out, "EvalActionName", action);
        http_text_element(out, "EvalResourceName", resource != NULL ? resource : "*");
        http_text_put(out, "<EvalDecision>allowed</EvalDecision><MatchedStatements/>"
                           "<MissingContextValues/></member>");
    }
    http_text_put(out, "</EvaluationResults>");
    return SHOAL_OK;
}

static const struct action actions[] = {
    {"GetCallerIdentity", "sts", "2011-06-15", caller_put},
    {"GetRole", "iam", "2010-05-08", role_put},
    {"SimulatePrincipalPolicy", "iam", "2010-05-08", simulation_put},
};

static enum shoal_status action_run(struct http_request *request, const struct action *action,
                                    struct http_text *out)
{
    http_text_format(out, "<%sResponse xmlns=\"https://%s.amazonaws.com/doc/%s/\"><%sResult>",
                     action->name, action->service, action->version, action->name);
    TRY(action->put(request, out));
    if (http_replied(request))
        return SHOAL_OK;
    http_text_format(out, "</%sResult><ResponseMetadata>", action->name);
    http_text_element(out, "RequestId", http_request_id(request));
    http_text_format(out, "</ResponseMetadata></%sResponse>", action->name);
    TRY(http_text_status(out));
    return http_reply_bytes(request, 200, "text/xml", out->bytes, out->count);
}

static enum shoal_status complete(void *user, struct http_request *request)
{
    const char *operation = http_request_operation(request);
    (void)user;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, operation) != 0)
            continue;
        struct http_text out = {0};
        enum shoal_status status = action_run(request, &actions[i], &out);
        http_text_free(&out);
        return status;
    }
    return http_reply_unknown(request);
}

const struct http_handler http_identity_handler = {.complete = complete};
