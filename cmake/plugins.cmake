# Build support of shared libraries with methods: the headers they are compiled against with a fingerprint of them, a
# package that find_package(kvarena) finds in the build folder and in an installed tree, and a program that exports its
# functions.

set(plugin_folders kernels harness/core harness/cache harness/storage harness/cost_model harness/method)
set(plugin_headers)
foreach(folder ${plugin_folders})
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${folder}/*.h)
  list(APPEND plugin_headers ${found})
endforeach()

set(fingerprint ${CMAKE_BINARY_DIR}/plugin/harness/method/plugin_fingerprint.h)
set(fingerprint_script ${CMAKE_SOURCE_DIR}/cmake/plugin_fingerprint.cmake)
add_custom_command(
  OUTPUT ${fingerprint}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} "-DHEADERS=${plugin_headers}" -DOUTPUT=${fingerprint}
          "-DBUILD=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, libtorch ${KVARENA_TORCH_VERSION}, ${KVARENA_SANITIZE}"
          -P ${fingerprint_script}
  DEPENDS ${plugin_headers} ${fingerprint_script}
  COMMENT "Taking the fingerprint of the plugin interface"
  VERBATIM)
add_custom_target(kvarena_plugin_fingerprint DEPENDS ${fingerprint})

# Sources that include harness/method/plugin.h.
function(kvarena_use_plugin_interface target)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/plugin)
  add_dependencies(${target} kvarena_plugin_fingerprint)
endfunction()

# A program that loads plugins holds all of the interface's functions, also those it does not call, and shows them.
function(kvarena_lend_functions program)
  foreach(library core kernels cache storage cost_model method)
    target_link_options(${program} PRIVATE
      "LINKER:--whole-archive,$<TARGET_FILE:kvarena_${library}>,--no-whole-archive")
    add_dependencies(${program} kvarena_${library})
  endforeach()
  target_link_options(${program} PRIVATE "LINKER:--dynamic-list,${CMAKE_SOURCE_DIR}/cmake/plugin_symbols.txt")
  set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/plugin_symbols.txt)
endfunction()

# The package, once for this build folder and once for an installed tree.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(KVARENA_TORCH_INCLUDE ${TORCH_INCLUDE})
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvarena)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/plugin/kvarenaConfigVersion.cmake COMPATIBILITY ExactVersion)

set(KVARENA_PLUGIN_INCLUDES ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/plugin)
set(KVARENA_PROGRAM ${CMAKE_BINARY_DIR}/bin/kvarena)
configure_file(${CMAKE_SOURCE_DIR}/cmake/kvarenaConfig.cmake.in ${CMAKE_BINARY_DIR}/plugin/kvarenaConfig.cmake @ONLY)

set(KVARENA_PLUGIN_INCLUDES "\${CMAKE_CURRENT_LIST_DIR}/../../../${CMAKE_INSTALL_INCLUDEDIR}/kvarena")
set(KVARENA_PROGRAM "\${CMAKE_CURRENT_LIST_DIR}/../../../${CMAKE_INSTALL_BINDIR}/kvarena")
configure_file(${CMAKE_SOURCE_DIR}/cmake/kvarenaConfig.cmake.in ${CMAKE_BINARY_DIR}/plugin/installed/kvarenaConfig.cmake
               @ONLY)

foreach(folder ${plugin_folders})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvarena/${folder} COMPONENT plugin
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES cmake/plugin_pch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvarena/cmake COMPONENT plugin)
install(FILES ${fingerprint} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvarena/harness/method COMPONENT plugin)
install(FILES ${CMAKE_BINARY_DIR}/plugin/kvarenaConfigVersion.cmake
              ${CMAKE_BINARY_DIR}/plugin/installed/kvarenaConfig.cmake
        DESTINATION ${package_folder} COMPONENT plugin)
