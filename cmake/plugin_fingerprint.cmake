# cmake -DSOURCE=tree -DHEADERS=a.h;b.h -DBUILD="compiler, libtorch" -DOUTPUT=plugin_fingerprint.h -P plugin_fingerprint.cmake
# A hash of everything that a plugin and the program that loads it must agree on.
set(text "${BUILD}\n")
foreach(header ${HEADERS})
  file(SHA256 ${SOURCE}/${header} hash)
  string(APPEND text "${hash} ${header}\n")
endforeach()
string(SHA256 fingerprint "${text}")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#pragma once
// Written by cmake/plugin_fingerprint.cmake: what headers, compiler and libtorch this build is made of.
#define KVARENA_PLUGIN_FINGERPRINT "@fingerprint@"
]] @ONLY)
