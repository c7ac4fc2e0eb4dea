/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: names, version, last error, element types. */
#include "api/handles.h"
#include "kernel/kernel.h"

static _Thread_local shoal_group_t failed_group;

const char *shoal_status_name(enum shoal_status status)
{
    switch (status) {
    case SHOAL_OK: return "SHOAL_OK";
    case SHOAL_IN_PROGRESS: return "SHOAL_IN_PROGRESS";
    case SHOAL_ERR_ARGUMENT: return "SHOAL_ERR_ARGUMENT";
    case SHOAL_ERR_UNSUPPORTED: return "SHOAL_ERR_UNSUPPORTED";
    case SHOAL_ERR_OPTION: return "SHOAL_ERR_OPTION";
    case SHOAL_ERR_STATE: return "SHOAL_ERR_STATE";
    case SHOAL_ERR_LIMIT: return "SHOAL_ERR_LIMIT";
    case SHOAL_ERR_MEMORY: return "SHOAL_ERR_MEMORY";
    case SHOAL_ERR_SYSTEM: return "SHOAL_ERR_SYSTEM";
    case SHOAL_ERR_FORMAT: return "SHOAL_ERR_FORMAT";
    case SHOAL_ERR_PEER_LOST: return "SHOAL_ERR_PEER_LOST";
    case SHOAL_ERR_PEER_UNREACHABLE: return "SHOAL_ERR_PEER_UNREACHABLE";
    case SHOAL_ERR_PEER_REFUSED: return "SHOAL_ERR_PEER_REFUSED";
    case SHOAL_ERR_TIMEOUT: return "SHOAL_ERR_TIMEOUT";
    case SHOAL_ERR_MISMATCH: return "SHOAL_ERR_MISMATCH";
    case SHOAL_ERR_ABORTED: return "SHOAL_ERR_ABORTED";
    case SHOAL_ERR_RANK_TAKEN: return "SHOAL_ERR_RANK_TAKEN";
    case SHOAL_ERR_INTERNAL: return "SHOAL_ERR_INTERNAL";
    }
    return "SHOAL_ERR_?";
}

const char *shoal_version(void)
{
    return SHOAL_VERSION_STRING;
}

enum shoal_status api_end(shoal_group_t handle, enum shoal_status status)
{
    if (status != SHOAL_OK && status != SHOAL_IN_PROGRESS)
        failed_group = handle;
    return status;
}

const char *shoal_last_error(shoal_group_t group)
{
    return group && group != failed_group ? "" : base_error_text();
}

size_t shoal_dtype_bytes(enum shoal_dtype dtype)
{
    return kernel_dtype_bytes(dtype);
}

const char *shoal_dtype_name(enum shoal_dtype dtype)
{
    return kernel_dtype_name(dtype);
}

const char *shoal_op_name(enum shoal_op op)
{
    return kernel_op_name(op);
}

int shoal_op_supported(enum shoal_op op, enum shoal_dtype dtype)
{
    return kernel_supports(dtype, op);
}
