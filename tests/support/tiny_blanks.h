#pragma once
// Blanks, line breaks and longer tokens for the small decoder's tokenizer, which has letters alone.

#include <filesystem>

namespace kvarena::testing {

/// Puts them in the place of letters that no text in English has, in the tokenizer of write_tiny_model().
void add_blanks(const std::filesystem::path& folder);

}  // namespace kvarena::testing
