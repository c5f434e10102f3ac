#pragma once
// Paths of the files that tests of this folder read and write.

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/default_model.h"
#include "tests/support/temporary_folder.h"

namespace kvarena::testing {

inline std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(KVARENA_SOURCE_DIR) / "tests" / "golden" / "model" / name;
}

/// Vocabularies and golden encodings that are too large for the tree.
inline std::filesystem::path shared_tokenizers() {
  return std::filesystem::path(KVARENA_SOURCE_DIR).parent_path() / "shared" / "data" / "tokenizers";
}

inline std::filesystem::path smollm2_file() { return default_model() / "SmolLM2-135M-Instruct.Q4_1.gguf"; }

/// The text of a file, plain or gzip.
inline std::string read_gzip(const std::filesystem::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (int got = 0; file && (got = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

/// The lines of a JSONL file, plain or gzip.
inline std::vector<nlohmann::json> read_jsonl(const std::filesystem::path& path) {
  const std::string text = read_gzip(path);
  std::vector<nlohmann::json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at)
      lines.push_back(
          nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(at), text.begin() + static_cast<ptrdiff_t>(end)));
    at = end + 1;
  }
  return lines;
}

}  // namespace kvarena::testing
