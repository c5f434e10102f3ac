# The target kvarena_headers: every header without a source of its name, compiled alone, twice in one file, without the
# precompiled header (which would lend it what it forgot to include). A header with one is included first there, and
# tests/house/check.py compares the names in it with its includes. Not part of `all`; CI builds it.

file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
     kernels/*.h harness/*.h methods/*.h datasets/*.h metrics/*.h reports/*.h)
foreach(header ${headers})
  string(REGEX REPLACE "h$" "cpp" source ${header})
  if(EXISTS ${CMAKE_SOURCE_DIR}/${source})
    continue()
  endif()
  set(unit ${CMAKE_BINARY_DIR}/headers/${header}.cpp)
  if(NOT EXISTS ${unit})
    file(WRITE ${unit} "#include \"${header}\"\n#include \"${header}\"\n")
  endif()
  list(APPEND header_units ${unit})
  if(header MATCHES "simd\\.h$")  # for sources that are compiled once per instruction set
    set_source_files_properties(${unit} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  endif()
endforeach()

add_library(kvarena_headers OBJECT EXCLUDE_FROM_ALL ${header_units})
target_link_libraries(kvarena_headers PRIVATE kvarena::torch OpenMP::OpenMP_CXX fmt::fmt nlohmann_json::nlohmann_json)
kvarena_flags(kvarena_headers)
kvarena_use_plugin_interface(kvarena_headers)
target_compile_options(kvarena_headers PRIVATE -O0)
