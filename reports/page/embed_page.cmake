# cmake -DOUTPUT=page_files.cpp -DFOLDER=reports/page -P embed_page.cmake: page.css and page.js as C++ strings.
file(READ ${FOLDER}/page.css style)
file(READ ${FOLDER}/page.js script)
file(WRITE ${OUTPUT} "#include \"reports/page/page_files.h\"

namespace kvarena::reports {

const char* const kPageStyle = R\"page(${style})page\";
const char* const kPageScript = R\"page(${script})page\";

}  // namespace kvarena::reports
")
