# kvarena_cuda_library(kernels_cuda PUBLIC dep): with KVARENA_CUDA=ON the target kvarena_kernels_cuda, of the files
# */*_cuda.cu of the folder, compiled for sm_80 and sm_90. Without, the call does nothing.

if(KVARENA_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(KVARENA_NVCC nvcc PATHS /usr/local/cuda/bin REQUIRED)
    set(CMAKE_CUDA_COMPILER ${KVARENA_NVCC})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  if(KVARENA_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  find_package(CUDAToolkit REQUIRED)
endif()

# -fmad=false: a product and a sum are fused only where the source says fmaf, or instantiations would differ in bits.
# --default-stream=per-thread: what a thread copies beside a pass does not stand in front of what the pass copies.
function(kvarena_cuda_library name)
  if(NOT KVARENA_CUDA)
    return()
  endif()
  file(GLOB cuda_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/*_cuda.cu)
  kvarena_library(${name} SOURCES ${cuda_files} ${ARGN})
  set(flags --expt-relaxed-constexpr -fmad=false --default-stream=per-thread -Xcompiler=-Wno-unknown-pragmas)
  target_compile_options(kvarena_${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${flags}>")
  target_link_libraries(kvarena_${name} PUBLIC CUDA::cudart_static)
endfunction()
