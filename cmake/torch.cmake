# Finds libtorch and defines kvarena::torch, which links only ATen's CPU library.
#
# find_package(Torch) is not used: the wheel's package file looks for a CUDA toolkit and links the CUDA
# libraries, which a CPU-only machine neither has nor needs. Order of search: KVARENA_TORCH_DIR (a folder with
# include/ and lib/, or the `torch` folder of a Python wheel), CMAKE_PREFIX_PATH, KVARENA_HOME, Debian's libtorch.

set(KVARENA_TORCH_DIR "" CACHE PATH "Folder of a libtorch with include/ and lib/")

set(torch_hints ${KVARENA_TORCH_DIR} $ENV{KVARENA_TORCH_DIR})
string(REPLACE ":" ";" torch_prefixes "${CMAKE_PREFIX_PATH};$ENV{CMAKE_PREFIX_PATH}")
foreach(prefix ${torch_prefixes})
  list(APPEND torch_hints ${prefix} ${prefix}/torch)
endforeach()
list(APPEND torch_hints ${KVARENA_HOME}/libtorch-2.11.0/torch)

find_path(TORCH_INCLUDE ATen/ATen.h HINTS ${torch_hints} PATH_SUFFIXES include NO_CACHE)
find_library(TORCH_CPU torch_cpu HINTS ${torch_hints} PATH_SUFFIXES lib lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE)
find_library(TORCH_C10 c10 HINTS ${torch_hints} PATH_SUFFIXES lib lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE)
if(NOT TORCH_INCLUDE OR NOT TORCH_CPU OR NOT TORCH_C10)
  message(FATAL_ERROR "libtorch not found: looked in KVARENA_TORCH_DIR, CMAKE_PREFIX_PATH, "
                      "${KVARENA_HOME}/libtorch-2.11.0 and the system folders; run scripts/setup to install it")
endif()

# The version macros moved between headers from release to release.
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h torch/version.h)
  if(EXISTS ${TORCH_INCLUDE}/${header} AND NOT KVARENA_TORCH_VERSION)
    file(READ ${TORCH_INCLUDE}/${header} torch_version_text)
    if(torch_version_text MATCHES "TORCH_VERSION_MAJOR ([0-9]+)")
      set(KVARENA_TORCH_VERSION ${CMAKE_MATCH_1})
      string(REGEX MATCH "TORCH_VERSION_MINOR ([0-9]+)" _ "${torch_version_text}")
      string(APPEND KVARENA_TORCH_VERSION .${CMAKE_MATCH_1})
      string(REGEX MATCH "TORCH_VERSION_PATCH ([0-9]+)" _ "${torch_version_text}")
      string(APPEND KVARENA_TORCH_VERSION .${CMAKE_MATCH_1})
    endif()
  endif()
endforeach()
message(STATUS "libtorch ${KVARENA_TORCH_VERSION}: ${TORCH_CPU}")

get_filename_component(TORCH_LIB_DIR ${TORCH_CPU} DIRECTORY)
add_library(kvarena_torch INTERFACE)
add_library(kvarena::torch ALIAS kvarena_torch)
# -idirafter, behind the system folders: libtorch brings a copy of fmt that must not hide the one we link.
if(NOT TORCH_INCLUDE STREQUAL "/usr/include")
  target_compile_options(kvarena_torch INTERFACE "SHELL:-idirafter ${TORCH_INCLUDE}")
endif()
# Named by -L and -l, and with an rpath of our own: CMake would warn of the libgomp.so.1 that the wheel carries beside the
# compiler's. Both have one soname, so a program loads one of them.
target_link_libraries(kvarena_torch INTERFACE -L${TORCH_LIB_DIR} -ltorch_cpu -lc10)
# The wheel's libtorch_cpu itself links two CUDA runtime libraries; its RPATH finds those that scripts/setup put
# beside it. The linker need not resolve them.
target_link_options(kvarena_torch INTERFACE -Wl,--allow-shlib-undefined)
if(NOT TORCH_LIB_DIR IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
  target_link_options(kvarena_torch INTERFACE -Wl,-rpath,${TORCH_LIB_DIR})
endif()
