#pragma once
// Sentences and words of English text as NLTK 3.10 finds them: its Punkt model (Kiss and Strunk 2006) and word
// tokenizer. Letters are those of Python's re, as in NLTK up to 3.9; the package regex, which 3.10 runs, has ½ and
// joiners otherwise.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kvarena::metrics {

/// Sentence boundaries by abbreviations, collocations and the case in which words were seen. Immutable after loading;
/// may be used by many threads.
class Punkt {
 public:
  /// Reads a model of NLTK's punkt_tab from its folder. Throws UserError that names the missing or broken file and says
  /// where to get it.
  explicit Punkt(const std::filesystem::path& folder);

  /// nltk.sent_tokenize(text): views into `text`.
  [[nodiscard]] std::vector<std::string_view> sentences(std::string_view text) const;

 private:
  struct Token;
  struct Slice;
  enum class Starts { yes, no, unknown };

  [[nodiscard]] std::vector<Slice> slices(std::string_view text) const;
  [[nodiscard]] bool has_break(std::string_view text) const;
  void mark_alone(Token& token) const;
  void mark_before(Token& token, const Token& next) const;
  [[nodiscard]] Starts starts_sentence(const Token& token) const;
  [[nodiscard]] int64_t seen(const std::string& type) const;

  std::unordered_set<std::string> abbreviations_;
  std::unordered_set<std::string> starters_;
  std::unordered_set<std::string> collocations_;  // two types with a tab between
  std::unordered_map<std::string, int64_t> cases_;
};

/// $KVARENA_HOME/punkt, which holds the English model.
[[nodiscard]] std::filesystem::path punkt_folder();

/// The model there, loaded at the first call.
[[nodiscard]] const Punkt& punkt();

/// The tokens of NLTKWordTokenizer in one sentence.
[[nodiscard]] std::vector<std::string> treebank_words(std::string_view sentence);

}  // namespace kvarena::metrics
