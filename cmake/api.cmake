# SPDX-License-Identifier: Apache-2.0
#
# The tables of SageMaker's API: tools/make-api writes them out of botocore's description of it, which
# tools/setup puts in .venv. Appends to missing_needs what is not there; sets SHOAL_API_TABLES.

set(SHOAL_API_MODEL "" CACHE FILEPATH "botocore's service-2.json.gz of sagemaker; empty: .venv's")
set(api_model "${SHOAL_API_MODEL}")
if(NOT api_model)
    file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/botocore/data/sagemaker/2017-07-24/service-2.json.gz")
    list(POP_FRONT found api_model)
endif()
find_program(SHOAL_PYTHON python3)

set(make_api "${PROJECT_SOURCE_DIR}/tools/make-api")
set(SHOAL_API_TABLES "${PROJECT_BINARY_DIR}/api/sagemaker.c")
if(NOT api_model OR NOT EXISTS "${api_model}")
    list(APPEND missing_needs "botocore in .venv")
elseif(NOT SHOAL_PYTHON OR NOT EXISTS "${make_api}")
    list(APPEND missing_needs "python3 and tools/make-api")
else()
    add_custom_command(OUTPUT "${SHOAL_API_TABLES}"
        COMMAND "${SHOAL_PYTHON}" "${make_api}" "${api_model}" "${SHOAL_API_TABLES}"
        DEPENDS "${make_api}" "${api_model}" COMMENT "Writing the tables of SageMaker's API")
endif()
