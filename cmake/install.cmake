# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts in place: the header, the shared library, shoal.pc and the command.

install(TARGETS shoal_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/shoal.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET shoal)
    install(TARGETS shoal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/shoal.pc.in" shoal.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/shoal.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
