#pragma once
// Inside the reports folder: page.css and page.js, built into the library.

namespace kvarena::reports {

extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace kvarena::reports
