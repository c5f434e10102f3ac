# What is installed: a folder with the program in `bin` beside the files that it reads (harness/core/own_files.h), which is
# the Python package `kvarena` as well.
#
#   cmake --install BUILD --prefix P     P/lib/kvarena, a link P/bin/kvarena, and headers for plugins
#   component `wheel`                    the folder alone, for pyproject.toml and scripts/wheel

# A build folder is one too.
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/configs ${CMAKE_BINARY_DIR}/configs SYMBOLIC)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
foreach(file bfcl_judge.py child.py code_judge.py plugins/engine.py plugins/press.py program_judge.py)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/python/kvarena/${file} ${CMAKE_BINARY_DIR}/${file} SYMBOLIC)
endforeach()

# libtorch of a wheel is that of the package torch beside it, elsewhere the one that was linked.
set_target_properties(kvarena PROPERTIES BUILD_RPATH "$ORIGIN/../../torch/lib" INSTALL_RPATH "$ORIGIN/../../torch/lib"
                                         INSTALL_RPATH_USE_LINK_PATH ON)

function(install_program folder)
  install(TARGETS kvarena DESTINATION ${folder}/bin ${ARGN})
  install(DIRECTORY configs ${CMAKE_BINARY_DIR}/samples DESTINATION ${folder} ${ARGN} PATTERN made EXCLUDE)
  install(DIRECTORY python/kvarena/ DESTINATION ${folder} ${ARGN} FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
  install(FILES scripts/fetch_wheels.py scripts/models.wheels.txt scripts/jieba.sdist.txt
          scripts/punkt.wheels.txt scripts/langdetect.sdist.txt DESTINATION ${folder}/scripts ${ARGN})
endfunction()

install_program(lib/kvarena)
install(CODE [[
  set(programs $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin)
  file(MAKE_DIRECTORY ${programs})
  file(CREATE_LINK ../lib/kvarena/bin/kvarena ${programs}/kvarena SYMBOLIC)
]])
install_program(. COMPONENT wheel EXCLUDE_FROM_ALL)
