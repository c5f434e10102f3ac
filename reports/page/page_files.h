#pragma once
// page.css and page.js, built into the program: the style and the few lines of script that every page carries.

namespace kvarena::reports {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace kvarena::reports
