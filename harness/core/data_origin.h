#pragma once
// Where samples come from, as results say it.

namespace kvarena {

/// Origin of samples that this project made up in a benchmark's format, so that everything runs without its files.
inline constexpr const char* kProjectMade = "project-made sample";

}  // namespace kvarena
