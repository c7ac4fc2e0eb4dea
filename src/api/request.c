/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: the public face of requests. */
#include "api/handles.h"

static enum shoal_status check_handle(const shoal_request_t *request)
{
    if (!request || !*request)
        return base_error(SHOAL_ERR_ARGUMENT, "request is NULL, or was finished already");
    TRY(comm_process_check());
    if (comm_request_is_idle((const struct comm_request *)*request))
        return base_error(SHOAL_ERR_ARGUMENT, "this request was finished already");
    return SHOAL_OK;
}

static shoal_group_t group_of(const shoal_request_t *request)
{
    return (shoal_group_t)((struct comm_request *)*request)->group;
}

enum shoal_status shoal_request_test(shoal_request_t *request)
{
    enum shoal_status status = check_handle(request);
    if (status != SHOAL_OK)
        return api_end(NULL, status);
    shoal_group_t group = group_of(request);
    return api_end(group, comm_request_test((struct comm_request **)request));
}

enum shoal_status shoal_request_wait(shoal_request_t *request, int64_t timeout_ms)
{
    enum shoal_status status = check_handle(request);
    if (status != SHOAL_OK)
        return api_end(NULL, status);
    shoal_group_t group = group_of(request);
    return api_end(group, comm_request_wait((struct comm_request **)request, timeout_ms));
}

enum shoal_status shoal_request_on_done(shoal_request_t request,
                                        void (*callback)(void *user, enum shoal_status status),
                                        void *user)
{
    enum shoal_status status = check_handle(&request);
    if (status == SHOAL_OK && !callback)
        status = base_error(SHOAL_ERR_ARGUMENT, "callback is NULL");
    if (status != SHOAL_OK)
        return api_end(NULL, status);
    return api_end(group_of(&request),
                   comm_request_on_done((struct comm_request *)request, callback, user));
}
