# Finds the libraries that others wrote, all in one place: what is missing is told at once, by name. Libraries without a
# CMake package that every system has become kvarena::pcre2, kvarena::utf8proc, kvarena::zstd, kvarena::glpk,
# kvarena::httplib, kvarena::x265 and kvarena::de265; the others keep the names of their packages.
#
# Searched: CMAKE_PREFIX_PATH, an active conda environment (environment.yml), what scripts/setup unpacked for a user
# without root, the system.

if(NOT "$ENV{KVARENA_HOME}" STREQUAL "")
  set(KVARENA_HOME $ENV{KVARENA_HOME})
else()
  set(KVARENA_HOME $ENV{HOME}/.cache/kvarena)
endif()
foreach(prefix $ENV{CONDA_PREFIX} ${KVARENA_HOME}/packages/usr)
  if(EXISTS ${prefix})
    list(APPEND CMAKE_PREFIX_PATH ${prefix})
    # An RPATH, not a RUNPATH: it is also searched for the libraries that these libraries need.
    add_link_options(-Wl,--disable-new-dtags -Wl,-rpath,${prefix}/lib
                     -Wl,-rpath,${prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
endforeach()

set(missing_libraries "")

# kvarena_find_package(fmt ...): find_package, whose target every folder sees.
macro(kvarena_find_package name)
  find_package(${name} QUIET GLOBAL ${ARGN})
  if(NOT ${name}_FOUND)
    list(APPEND missing_libraries ${name})
  endif()
endmacro()

# kvarena_find_library(pcre2 pcre2-8 pcre2.h) -> kvarena::pcre2 of libpcre2-8, where library and header are found.
function(kvarena_find_library name file header)
  find_library(KVARENA_${name}_LIBRARY ${file})
  find_path(KVARENA_${name}_INCLUDE ${header})
  if(KVARENA_${name}_LIBRARY AND KVARENA_${name}_INCLUDE)
    add_library(kvarena::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(kvarena::${name} PROPERTIES
      IMPORTED_LOCATION ${KVARENA_${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${KVARENA_${name}_INCLUDE})
  endif()
endfunction()

kvarena_find_package(Threads)
kvarena_find_package(OpenMP COMPONENTS CXX)
kvarena_find_package(nlohmann_json)
kvarena_find_package(fmt)
kvarena_find_package(spdlog)
kvarena_find_package(CLI11)
kvarena_find_package(SQLite3)
kvarena_find_package(SQLiteCpp)
kvarena_find_package(CURL)
kvarena_find_package(OpenSSL COMPONENTS Crypto)
kvarena_find_package(ZLIB)
kvarena_find_library(zstd zstd zstd.h)
kvarena_find_library(pcre2 pcre2-8 pcre2.h)
kvarena_find_library(utf8proc utf8proc utf8proc.h)
kvarena_find_library(glpk glpk glpk.h)
# Debian's package of cpp-httplib is a compiled library without a CMake package.
find_package(httplib QUIET GLOBAL)
if(httplib_FOUND)
  add_library(kvarena::httplib ALIAS httplib::httplib)
else()
  kvarena_find_library(httplib cpp-httplib httplib.h)
  if(TARGET kvarena::httplib)
    target_compile_definitions(kvarena::httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT
                                                          CPPHTTPLIB_BROTLI_SUPPORT)
  endif()
endif()
foreach(name zstd pcre2 utf8proc glpk httplib)
  if(NOT TARGET kvarena::${name})
    list(APPEND missing_libraries ${name})
  endif()
endforeach()
if(missing_libraries)
  list(JOIN missing_libraries ", " missing_libraries)
  message(FATAL_ERROR "Libraries with headers that were not found: ${missing_libraries}. On Debian and Ubuntu "
                      "scripts/setup brings them, with or without root; elsewhere make the conda environment of "
                      "environment.yml and activate it, or install what scripts/packages.txt lists")
endif()

# Only one method reads these; a build without them says so when it is asked for.
kvarena_find_library(x265 x265 x265.h)
kvarena_find_library(de265 de265 libde265/de265.h)

find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(STATUS "GoogleTest was not found: there will be no tests (scripts/packages.test.txt)")
endif()
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "Google Benchmark was not found: there will be no benchmark programs (scripts/packages.test.txt)")
endif()
