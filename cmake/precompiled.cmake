# Precompiled headers, each made once and shared by all targets that ask for it:
#
#   kvarena_use_json(target)  sources that include nlohmann/json.hpp and fmt: 2 s less a file
#   kvarena_use_aten(target)  all sources include <ATen/ATen.h>: GCC 12 takes 7 s to read libtorch 2.11's, with this 1 s;
#                             made in 15 s, 390 MB. It costs 3 s in a file that needs none of it (templates that its
#                             functions name are instantiated everywhere)
#   kvarena_use_both(target)  the second for sources with tensors, the first for others
#   kvarena_use_gtest(target) the first for tests
#
# GCC accepts a precompiled header only where the flags that matter are the same (-fPIC, -fopenmp, -m..., -f...math...),
# so these functions set them alike; a difference that slips in is reported by -Winvalid-pch, which is an error here like
# every warning. With these headers the overlap that GCC 12 imagines in "," + string() (bug 105651) may come out as
# -Wstringop-overflow: say fmt::format(",{}", ...) there.

# Without a precompiled header itself: it has what theirs leave out.
kvarena_library(json_instances SOURCES ${CMAKE_SOURCE_DIR}/cmake/json_instances.cpp PUBLIC nlohmann_json::nlohmann_json)

function(kvarena_shared_header name header)
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
  target_link_libraries(${name} PRIVATE OpenMP::OpenMP_CXX ${ARGN})
  kvarena_flags(${name})
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${header})
endfunction()

kvarena_shared_header(kvarena_aten_pch aten_pch.h kvarena::torch)
kvarena_shared_header(kvarena_json_pch json_pch.h nlohmann_json::nlohmann_json fmt::fmt)
if(GTest_FOUND)
  kvarena_shared_header(kvarena_test_pch test_pch.h nlohmann_json::nlohmann_json fmt::fmt GTest::gtest)
endif()

function(kvarena_use_header target header)
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX ${ARGN})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # -fPIE would differ from the libraries' -fPIC
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()

function(kvarena_use_aten target)
  kvarena_use_header(${target} kvarena_aten_pch kvarena::torch)
endfunction()

function(kvarena_use_json target)
  kvarena_use_header(${target} kvarena_json_pch kvarena::json_instances fmt::fmt)
endfunction()

function(kvarena_use_both target)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # Clang takes no -include of a precompiled header
    kvarena_use_aten(${target})
    return()
  endif()
  kvarena_use_json(${target})
  target_link_libraries(${target} PRIVATE kvarena::torch)
  set(header ${CMAKE_BINARY_DIR}/CMakeFiles/kvarena_aten_pch.dir/cmake_pch.hxx)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_filename_component(path ${source} ABSOLUTE)
    file(STRINGS ${path} tensors REGEX "#include (<ATen/|\"harness/method/(wrapping_)?scorer\\.h)" LIMIT_COUNT 1)
    if(tensors)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON OBJECT_DEPENDS ${header}.gch
                                  COMPILE_OPTIONS "-Winvalid-pch;-include;${header}")
    endif()
  endforeach()
endfunction()

function(kvarena_use_gtest target)
  kvarena_use_header(${target} kvarena_test_pch kvarena::json_instances fmt::fmt)
endfunction()
