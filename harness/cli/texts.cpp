#include "harness/cli/texts.h"

#include <algorithm>
#include <filesystem>

#include "datasets/texts/essays.h"
#include "datasets/workload.h"
#include "harness/core/files.h"
#include "harness/evaluate/loaded_model.h"

namespace kvarena::cli {
namespace {

namespace fs = std::filesystem;

/// Pieces of one long text, each long enough for a sample (a token has 8 bytes at most, nearly always).
std::vector<std::string> pieces(const std::string& text, int64_t count, int64_t tokens) {
  std::vector<std::string> texts;
  const size_t bytes = static_cast<size_t>(tokens) * 8;
  for (size_t at = 0; at < text.size() && static_cast<int64_t>(texts.size()) < count; at += bytes) {
    texts.push_back(text.substr(at, bytes));
  }
  return texts;
}

std::vector<std::string> texts_of_files(const fs::path& path, int64_t count, int64_t tokens) {
  if (!fs::is_directory(path)) return pieces(read_file(path), count, tokens);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> texts;
  for (const fs::path& file : files) {
    const auto part = pieces(read_file(file), count - static_cast<int64_t>(texts.size()), tokens);
    texts.insert(texts.end(), part.begin(), part.end());
  }
  return texts;
}

std::vector<std::string> texts_of_workload(const std::string& name, int64_t count, const OpenedModel& model) {
  const evaluate::ModelTokens counter(*model.tokenizer);
  const auto workload = datasets::make_workload(name, "{}", "--data");
  datasets::SampleReader reader =
      workload->open({.tokens = &counter, .max_prompt_tokens = model.config.max_position / 2});
  std::vector<std::string> texts;
  while (static_cast<int64_t>(texts.size()) < count) {
    const auto sample = reader.next();
    if (!sample) break;
    std::string& text = texts.emplace_back();
    for (const datasets::Message& message : sample->messages) text += message.content;
  }
  return texts;
}

}  // namespace

std::vector<std::string> read_texts(const TextRequest& wanted, const OpenedModel& model) {
  if (wanted.data == "essays") {
    std::vector<std::string> texts;
    const auto seed = static_cast<uint64_t>(wanted.seed);
    for (int64_t i = 0; i < wanted.count; ++i) {
      texts.push_back(
          datasets::write_essays(seed * 1'000'003 + static_cast<uint64_t>(i), static_cast<size_t>(wanted.tokens) * 8));
    }
    return texts;
  }
  if (fs::exists(wanted.data)) return texts_of_files(wanted.data, wanted.count, wanted.tokens);
  return texts_of_workload(wanted.data, wanted.count, model);
}

}  // namespace kvarena::cli
