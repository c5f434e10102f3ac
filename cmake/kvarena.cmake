# How a folder becomes a target. Every folder calls one of these three; flags live on targets, never in globals.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(KVARENA_CCACHE ccache)
if(KVARENA_CCACHE)
  # Precompiled headers are cached only with these sloppiness flags and GCC's -fpch-preprocess.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_INODECACHE=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${KVARENA_CCACHE})
endif()

# A libtorch program links in a tenth of the time with lld.
find_program(KVARENA_LLD ld.lld)

function(kvarena_flags target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-fno-math-errno>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${KVARENA_WERROR}>>:-Werror>
    # -Wno-restrict: GCC 12 sees an overlap in "text" + string that is not there (bug 105651). No cold sections: GCC 12
    # leaves empty ones, whose unwind entries hide the next function's, so that an exception through it aborts. Below 1 GB
    # GCC collects no garbage: over a precompiled header that takes a tenth of its time or more.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess;-Wno-restrict;-fno-reorder-blocks-and-partition>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KVARENA_WERROR}>>:-Werror=all-warnings>)
  if(KVARENA_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KVARENA_SANITIZE};-fno-omit-frame-pointer>)
    target_link_options(${target} PUBLIC -fsanitize=${KVARENA_SANITIZE})
  endif()
  if(KVARENA_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# Optimises kernels and emulated hardware in debug builds as well: tests over them would take hours at -O0. Everything
# that calls them keeps -O0.
function(kvarena_kernel_flags target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Debug>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# Compiles at -O1, in three quarters of the time: for what prepares, schedules and prints and leaves arithmetic to others.
function(kvarena_light_flags target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# kvarena_library(core SOURCES a.cpp b.cpp PUBLIC dep PRIVATE dep) -> target kvarena_core, alias kvarena::core. LIGHT:
# with kvarena_light_flags.
function(kvarena_library name)
  cmake_parse_arguments(ARG "OBJECT;LIGHT" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_OBJECT)  # a static library would lose files that only register themselves
    add_library(kvarena_${name} OBJECT ${ARG_SOURCES})
  else()
    add_library(kvarena_${name} STATIC ${ARG_SOURCES})
  endif()
  add_library(kvarena::${name} ALIAS kvarena_${name})
  target_link_libraries(kvarena_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  kvarena_flags(kvarena_${name})
  if(ARG_LIGHT)
    kvarena_light_flags(kvarena_${name})
  endif()
endfunction()

# kvarena_benchmark(name [EXCLUDE_FROM_ALL] SOURCES a.cpp DEPS kvarena::core) -> a program of Google Benchmark, where that
# library is.
function(kvarena_benchmark name)
  cmake_parse_arguments(ARG "EXCLUDE_FROM_ALL" "" "SOURCES;DEPS" ${ARGN})
  if(NOT benchmark_FOUND)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${ARG_EXCLUDE_FROM_ALL})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  kvarena_flags(${name})
endfunction()

# For tests over the emulated device, whose threads are fibers: the address sanitizer would keep memory for returned
# frames of every one.
function(kvarena_test_runs_fibers name)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_stack_use_after_return=0:handle_sigill=1)
endfunction()

# kvarena_test(core_test SOURCES a_test.cpp DEPS kvarena::core [ATEN] [LABEL long|slow] [SHARDS 4]) -> one CTest entry per
# program: a program linked to libtorch takes a fifth of a second just to start. Where a program runs for many minutes,
# SHARDS entries share its cases.
function(kvarena_test name)
  cmake_parse_arguments(ARG "ATEN" "LABEL;TIMEOUT;SHARDS" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE KVARENA_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             KVARENA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  kvarena_flags(${name})
  kvarena_light_flags(${name})
  if(ARG_ATEN)
    kvarena_use_aten(${name})
  else()
    kvarena_use_gtest(${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(KVARENA_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  if(NOT ARG_SHARDS)
    kvarena_test_entry(${name} ${name} ${ARG_TIMEOUT} "${ARG_LABEL}")
    return()
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    math(EXPR index "${shard} - 1")
    kvarena_test_entry(${name}_${shard} ${name} ${ARG_TIMEOUT} "${ARG_LABEL}" GTEST_TOTAL_SHARDS=${ARG_SHARDS}
                       GTEST_SHARD_INDEX=${index} GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test-results/${name}_${shard}.xml)
  endforeach()
endfunction()

# A CTest entry that runs a GoogleTest program, with variables as given. What might run longest is started first. Tests run
# beside each other on few cores, each on one thread, or on as many as its folder sets KVARENA_TEST_THREADS to, for what
# divides work among them; threads that wait for each other give up their core soon.
function(kvarena_test_entry entry program timeout label)
  if(NOT KVARENA_TEST_THREADS)
    set(KVARENA_TEST_THREADS 1)
  endif()
  add_test(NAME ${entry} COMMAND ${program})
  set_tests_properties(${entry} PROPERTIES
    TIMEOUT ${timeout} COST ${timeout} LABELS "${label}"
    ENVIRONMENT "GOMP_SPINCOUNT=1000;OMP_NUM_THREADS=${KVARENA_TEST_THREADS};${ARGN}")
endfunction()
