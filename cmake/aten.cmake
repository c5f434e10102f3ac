# kvarena_use_aten(target): the target's sources may include <ATen/ATen.h>, and pay little for it.
#
# GCC 12 takes 7 s to read ATen/ATen.h of libtorch 2.11; a precompiled header brings that to 1 s, and one is shared by
# all targets, since it takes 15 s and 390 MB to make. GCC accepts a precompiled header only where the flags that
# matter are the same (-fPIC, -fopenmp, -m..., -f...math...), so this function sets them alike; a difference that
# slips in is reported by -Winvalid-pch, which is an error here like every warning.

add_library(kvarena_aten_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/aten_pch.cpp)
target_link_libraries(kvarena_aten_pch PRIVATE kvarena::torch OpenMP::OpenMP_CXX)
kvarena_flags(kvarena_aten_pch)
target_precompile_headers(kvarena_aten_pch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/aten_pch.h)

function(kvarena_use_aten target)
  target_link_libraries(${target} PRIVATE kvarena::torch OpenMP::OpenMP_CXX)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # -fPIE would differ from the libraries' -fPIC
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM kvarena_aten_pch)
endfunction()
