# SPDX-License-Identifier: Apache-2.0
#
# Puts the tables of models/ into headers, as text, so that the command has them wherever it is:
# gradients into model_tables.h, trees of modules into model_trees.h, trainings into trainings.h.

# shoal_model_header(name folder): models/<name>.h with an array of that name.
function(shoal_model_header name folder)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*.txt)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
    list(LENGTH files count)
    string(TOUPPER ${name} upper)
    set(rows "")
    foreach(file IN LISTS files)
        get_filename_component(model "${file}" NAME_WE)
        file(READ "${file}" text)
        string(REPLACE "\"" "\\\"" text "${text}")
        string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
        string(APPEND rows "    {\"${model}\",\n     \"${text}\"},\n")
    endforeach()
    file(CONFIGURE OUTPUT models/${name}.h @ONLY CONTENT [[
/* @name@.h: made by cmake/models.cmake. */
#define @upper@_COUNT @count@u

static const struct model_table @name@[] = {
@rows@};
]])
endfunction()

shoal_model_header(model_tables models)
shoal_model_header(model_trees models/trees)
shoal_model_header(trainings models/trainings)
