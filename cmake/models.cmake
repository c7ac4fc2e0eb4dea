# SPDX-License-Identifier: Apache-2.0
#
# Puts the tables of models/ into a header, as text, so that the command has them wherever it is.

file(GLOB model_files CONFIGURE_DEPENDS models/*.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${model_files})
list(LENGTH model_files model_count)
set(model_tables "")
foreach(file IN LISTS model_files)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" text)
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
    string(APPEND model_tables "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
file(CONFIGURE OUTPUT models/model_tables.h @ONLY CONTENT [[
/* model_tables.h: made by cmake/models.cmake. */
#define MODEL_TABLE_COUNT @model_count@u

static const struct {
    const char *name, *text;
} model_tables[] = {
@model_tables@};
]])
