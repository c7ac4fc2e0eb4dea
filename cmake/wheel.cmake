# SPDX-License-Identifier: Apache-2.0
#
# What a Python wheel holds (see pyproject.toml): everything the package needs lies inside it, so
# that it finds the library and the header beside its own files, and the PyTorch binding can be
# compiled from the sources in it at the first import.

install(DIRECTORY bindings/python/shoal/ DESTINATION shoal
    FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
install(DIRECTORY bindings/torch/ DESTINATION shoal/torch
    FILES_MATCHING PATTERN "*.py" PATTERN "*.cpp" PATTERN "*.h" PATTERN "*.c")
install(FILES include/shoal.h DESTINATION shoal/include)
install(TARGETS shoal_shared LIBRARY DESTINATION shoal/lib)
if(TARGET shoal)
    install(TARGETS shoal RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}")
endif()
