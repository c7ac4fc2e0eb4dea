/* SPDX-License-Identifier: Apache-2.0 */
/* refusal.c: one row per refusal: what each family of services says in that case. */
#include "http/refusal.h"

#include "http/request.h"

struct words {
    int status;
    const char *code;
};

struct row {
    struct words s3, json, query;
    const char *text;
};

/* Codes and texts are those of the public services, which clients compare. */
static const struct row rows[REFUSAL_COUNT] = {
    [HTTP_UNSIGNED] = {{403, "AccessDenied"},
                       {400, "MissingAuthenticationTokenException"},
                       {403, "MissingAuthenticationToken"},
                       "Access Denied: the request carries no signature"},
    [HTTP_MALFORMED] = {{400, "AuthorizationHeaderMalformed"},
                        {400, "IncompleteSignatureException"},
                        {400, "IncompleteSignature"},
                        "The authorization header is malformed"},
    [HTTP_MALFORMED_QUERY] = {{400, "AuthorizationQueryParametersError"},
                              {400, "IncompleteSignatureException"},
                              {400, "IncompleteSignature"},
                              "The authorization in the query is malformed"},
    [HTTP_UNKNOWN_KEY] = {{403, "InvalidAccessKeyId"},
                          {400, "UnrecognizedClientException"},
                          {403, "InvalidClientTokenId"},
                          "The AWS Access Key Id you provided does not exist in our records. The "
                          "security token included in the request is invalid"},
    [HTTP_WRONG_SIGNATURE] = {{403, "SignatureDoesNotMatch"},
                              {400, "InvalidSignatureException"},
                              {403, "SignatureDoesNotMatch"},
                              "The request signature we calculated does not match the signature "
                              "you provided. Check your key and signing method"},
    [HTTP_SKEWED] = {{403, "RequestTimeTooSkewed"},
                     {400, "InvalidSignatureException"},
                     {403, "SignatureDoesNotMatch"},
                     "The difference between the request time and the current time is too large"},
    [HTTP_EXPIRED] = {{403, "AccessDenied"},
                      {400, "InvalidSignatureException"},
                      {403, "RequestExpired"},
                      "Request has expired"},
    [HTTP_HEADER_UNSIGNED] = {{403, "AccessDenied"},
                              {400, "InvalidSignatureException"},
                              {403, "SignatureDoesNotMatch"},
                              "There were headers present in the request which were not signed"},
    [HTTP_PAYLOAD_MISSING] = {{400, "InvalidRequest"},
                              {400, "InvalidSignatureException"},
                              {400, "SignatureDoesNotMatch"},
                              "Missing required header for this request: x-amz-content-sha256"},
    [HTTP_PAYLOAD_WRONG] = {{400, "XAmzContentSHA256Mismatch"},
                            {400, "InvalidSignatureException"},
                            {403, "SignatureDoesNotMatch"},
                            "The provided 'x-amz-content-sha256' header does not match what was "
                            "computed"},
    [HTTP_PAYLOAD_UNKNOWN] = {{400, "InvalidArgument"},
                              {400, "InvalidSignatureException"},
                              {400, "SignatureDoesNotMatch"},
                              "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
                              "STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
                              "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, "
                              "STREAMING-UNSIGNED-PAYLOAD-TRAILER or a valid sha256 value"},
    [HTTP_WRONG_SERVICE] = {{400, "AuthorizationHeaderMalformed"},
                            {400, "InvalidSignatureException"},
                            {403, "SignatureDoesNotMatch"},
                            "Credential should be scoped to correct service"},
    [REFUSAL_HEAD_TOO_LARGE] = {{400, "RequestHeaderSectionTooLarge"},
                                {431, "RequestHeaderSectionTooLarge"},
                                {431, "RequestHeaderSectionTooLarge"},
                                "Your request header section exceeds the maximum allowed size"},
    [REFUSAL_TARGET] = {{400, "InvalidURI"},
                        {400, "ValidationException"},
                        {400, "MalformedQueryString"},
                        "Couldn't parse the specified URI"},
    [REFUSAL_BODY_TOO_LARGE] = {{400, "EntityTooLarge"},
                                {413, "RequestEntityTooLargeException"},
                                {413, "RequestEntityTooLarge"},
                                "Your proposed upload exceeds the maximum allowed size"},
    [REFUSAL_BODY_FORM] = {{400, "InvalidRequest"},
                           {400, "SerializationException"},
                           {400, "MalformedQueryString"},
                           "The body is not what its headers announce"},
    [REFUSAL_BODY_SHORT] = {{400, "IncompleteBody"},
                            {400, "SerializationException"},
                            {400, "MalformedQueryString"},
                            "You did not provide the number of bytes specified by the "
                            "Content-Length HTTP header"},
    [REFUSAL_INTERNAL] = {{500, "InternalError"},
                          {500, "InternalFailure"},
                          {500, "InternalFailure"},
                          "We encountered an internal error"},
    [REFUSAL_MEMORY] = {{503, "SlowDown"},
                        {503, "ServiceUnavailable"},
                        {503, "ServiceUnavailable"},
                        "Please reduce your request rate: there is no memory for it now"},
    [REFUSAL_STOPPING] = {{503, "ServiceUnavailable"},
                          {503, "ServiceUnavailable"},
                          {503, "ServiceUnavailable"},
                          "The service is being stopped; please try again"},
};

void http_refuse(struct http_request *request, int refusal, const char *more)
{
    const struct row *row = &rows[refusal];
    const struct words *words = &row->json;
    if (request->service == HTTP_S3)
        words = &row->s3;
    else if (route_is_query(request->service))
        words = &row->query;
    http_reply_error(request, words->status, words->code, "%s%s%s.", row->text,
                     more != NULL ? ": " : "", more != NULL ? more : "");
}
