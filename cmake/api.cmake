# SPDX-License-Identifier: Apache-2.0
#
# The tables of the services' APIs: tools/make-api writes them out of botocore's descriptions, which
# tools/setup puts in .venv. Appends to missing_needs what is not there; sets SHOAL_API_TABLES.

set(SHOAL_API_MODELS "" CACHE PATH "botocore's folder of descriptions (botocore/data); empty: .venv's")
set(api_models "${SHOAL_API_MODELS}")
if(NOT api_models)
    file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/botocore/data")
    list(POP_FRONT found api_models)
endif()
find_program(SHOAL_PYTHON python3)

set(make_api "${PROJECT_SOURCE_DIR}/tools/make-api")
set(SHOAL_API_TABLES "")
set(api_sagemaker "sagemaker/2017-07-24")
set(api_logs "logs/2014-03-28")
set(api_monitoring "cloudwatch/2010-08-01")
if(NOT SHOAL_PYTHON OR NOT EXISTS "${make_api}")
    list(APPEND missing_needs "python3 and tools/make-api")
elseif(NOT EXISTS "${api_models}/${api_sagemaker}/service-2.json.gz")
    list(APPEND missing_needs "botocore in .venv")
else()
    foreach(service IN ITEMS sagemaker logs monitoring)
        set(model "${api_models}/${api_${service}}/service-2.json.gz")
        set(tables "${PROJECT_BINARY_DIR}/api/${service}.c")
        list(APPEND SHOAL_API_TABLES "${tables}")
        add_custom_command(OUTPUT "${tables}"
            COMMAND "${SHOAL_PYTHON}" "${make_api}" ${service} "${model}" "${tables}"
            DEPENDS "${make_api}" "${model}" COMMENT "Writing the tables of the API of ${service}")
    endforeach()
endif()
