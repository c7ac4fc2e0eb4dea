# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts in place: the header, the shared library, shoal.pc and the command; and in
# share/shoal/python the Python packages, as a wheel holds them, for the jobs of `shoal serve`.

install(TARGETS shoal_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/shoal.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET shoal)
    install(TARGETS shoal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/shoal.pc.in" shoal.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/shoal.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(python_packages "${CMAKE_INSTALL_DATADIR}/shoal/python")
install(DIRECTORY bindings/python/shoal bindings/smdistributed/smdistributed
    DESTINATION "${python_packages}" FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
install(DIRECTORY bindings/torch/ DESTINATION "${python_packages}/shoal/torch"
    FILES_MATCHING PATTERN "*.py" PATTERN "*.cpp" PATTERN "*.h" PATTERN "*.c")
install(DIRECTORY "${PROJECT_BINARY_DIR}/torch/" DESTINATION "${python_packages}/shoal/torch"
    OPTIONAL FILES_MATCHING PATTERN "*.so")
install(FILES include/shoal.h DESTINATION "${python_packages}/shoal/include")
install(FILES "$<TARGET_FILE:shoal_shared>" DESTINATION "${python_packages}/shoal/lib" RENAME libshoal.so)
