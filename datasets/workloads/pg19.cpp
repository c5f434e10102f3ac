// PG-19: books for perplexity. A sample is a text that the model scores token by token; nothing is generated. The text
// is the beginning of a book, cut to a number of tokens where a tokenizer is given and the number is set.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/data_files.h"
#include "datasets/records.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

int64_t words_of(const std::string& text) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
    words += !blank && !inside;
    inside = !blank;
  }
  return words;
}

class Pg19Source final : public SampleSource {
 public:
  Pg19Source(std::vector<std::filesystem::path> books, std::string origin, int64_t max_tokens, int64_t scored_tokens,
             const TokenCounter* tokens)
      : books_(std::move(books)),
        origin_(std::move(origin)),
        max_tokens_(max_tokens),
        scored_tokens_(scored_tokens),
        tokens_(tokens) {}

  bool next(Sample& sample) override {
    if (book_ == books_.size()) return false;
    const std::filesystem::path& path = books_[book_++];
    std::string text = read_file(path);
    const size_t bad = find_bad_utf8(text);
    if (bad != std::string_view::npos) {
      fail({.place = path.string(), .found = fmt::format("a byte that is not UTF-8 at {}", bad), .expected = "UTF-8"});
    }
    sample.data_sha256 = sha256(text);
    if (max_tokens_ > 0) {
      const std::vector<int32_t> ids = tokens_->encode(text);
      const size_t kept = std::min(ids.size(), static_cast<size_t>(max_tokens_));
      if (kept < ids.size()) text = tokens_->decode(std::span(ids).first(kept));
    }
    sample.id = path.stem().string();
    sample.origin = origin_.empty() ? path.filename().string() : origin_;
    nlohmann::json extras = {{"score_prompt", true}, {"words", words_of(text)}};
    if (scored_tokens_ > 0) extras["scored_tokens"] = scored_tokens_;
    sample.extras = extras.dump();
    sample.messages = {{"user", std::move(text)}};
    return true;
  }

 private:
  std::vector<std::filesystem::path> books_;
  std::string origin_;
  int64_t max_tokens_;
  int64_t scored_tokens_;
  const TokenCounter* tokens_;
  size_t book_ = 0;
};

class Pg19 final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("max_tokens", max_tokens_).min(0).doc("tokens of each book that are scored, from its beginning; 0 = all");
    p("scored_tokens", scored_tokens_).min(0).doc("of them, those at the end that are scored; 0 = the second half");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (max_tokens_ > 0 && !settings.tokens) {
      fail({.place = info().name, .found = "max_tokens without a tokenizer", .expected = "both or neither"});
    }
    // All books beside the one that is found; the order of names is the order of samples.
    const DataFile first = require_data_file(info(), settings.data_dir);
    std::vector<std::filesystem::path> books;
    for (const auto& entry : std::filesystem::directory_iterator(first.path.parent_path())) {
      if (entry.path().extension() == ".txt") books.push_back(entry.path());
    }
    std::sort(books.begin(), books.end());
    const bool project_made = first.origin != first.path.filename().string();
    return std::make_unique<Pg19Source>(std::move(books), project_made ? first.origin : "", max_tokens_, scored_tokens_,
                                        settings.tokens);
  }

 private:
  int64_t max_tokens_ = 0;
  int64_t scored_tokens_ = 0;
};

KVARENA_WORKLOAD(Pg19, {.name = "pg19",
                        .family = "pg19",
                        .title = "PG-19: perplexity on the beginnings of books",
                        .source = "https://github.com/google-deepmind/pg19",
                        .download = "gsutil -m cp -r gs://deepmind-gutenberg/test $KVARENA_DATA/pg19/",
                        .licence = "Apache-2.0 (set); texts in the public domain",
                        .metrics = {"perplexity"},
                        .folder = "pg19",
                        .files = {"0.txt", "10146.txt", "1342_ch01-24.txt"},
                        .samples = 100,
                        .chat_template = false,
                        .generation = {.max_new_tokens = 1}});

}  // namespace
}  // namespace kvarena::datasets
