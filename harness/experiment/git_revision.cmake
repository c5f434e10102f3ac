# cmake -DSOURCE=tree -DOUTPUT=git_revision.cpp -P git_revision.cmake
# Runs in every build and writes the file only when the revision is another one.
set(revision unknown)
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE status)
if(status EQUAL 0)
  set(revision ${head})
  # Pages of results are no source: scripts/papers writes them between its runs.
  set(but_pages ":(exclude)reports/papers")
  # Without --no-optional-locks this would take the index lock under the hands of whoever is committing.
  execute_process(COMMAND git --no-optional-locks -C ${SOURCE} status --porcelain --untracked-files=no -- . ${but_pages}
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  # A new file is compiled in as soon as it lies in one of these folders.
  execute_process(COMMAND git -C ${SOURCE} ls-files --others --exclude-standard -- cmake kernels harness methods datasets
                          metrics reports ${but_pages}
                  OUTPUT_VARIABLE added ERROR_QUIET)
  if(changes OR added)
    string(APPEND revision -dirty)
  endif()
endif()
set(text "#include \"harness/experiment/build_info.h\"\n\nnamespace kvarena::experiment {\n\n")
string(APPEND text "std::string git_revision() { return \"${revision}\"; }\n\n}  // namespace kvarena::experiment\n")
set(present "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} present)
endif()
if(NOT present STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
