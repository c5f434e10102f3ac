#pragma once
// Vocabularies for the small random decoder's folder (tiny_model_files.h).

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kvarena::testing {

/// Writes tokenizer.json: token id i says the ASCII character order[i]; `pairs` are tokens of two characters that take
/// the places of the last ids.
void write_vocabulary(const std::filesystem::path& folder, const std::vector<int32_t>& order,
                      const std::vector<std::pair<char, char>>& pairs = {});

/// All of ASCII, a token a character.
std::vector<int32_t> ascii();

/// ASCII characters under shuffled ids.
std::vector<int32_t> shuffled();

}  // namespace kvarena::testing
