#pragma once
// The language of a text as the Python package langdetect 1.0.9 tells it (after Nakatani's language-detection), with
// that package's own profiles: naive Bayes over n-grams of one to three characters, drawn at random.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvarena::metrics {

/// Immutable after loading; may be used by many threads.
class LanguageDetector {
 public:
  /// Reads profiles/ and messages.properties of a folder. Throws UserError that names the missing or broken file and
  /// says where to get it.
  explicit LanguageDetector(const std::filesystem::path& folder);

  /// langdetect.detect(text) with DetectorFactory.seed = 0: "en", "zh-cn", ..., or "unknown" where none is likely.
  /// Nothing where langdetect throws: no n-gram of the text is in a profile.
  [[nodiscard]] std::optional<std::string> detect(std::string_view text) const;

 private:
  void load_messages(const std::filesystem::path& file);
  void load_profile(const std::filesystem::path& file, size_t language);
  [[nodiscard]] std::u32string cleaned(std::string_view text) const;
  [[nodiscard]] std::u32string with_vietnamese_marks(std::u32string text) const;
  [[nodiscard]] char32_t normalized(char32_t c) const;
  [[nodiscard]] std::vector<const std::vector<double>*> ngrams(std::u32string_view text) const;

  std::vector<std::string> languages_;
  std::unordered_map<std::u32string, std::vector<double>> probabilities_;  // of an n-gram in each language
  std::unordered_map<char32_t, char32_t> ideographs_;                      // to the one that stands for its class
  std::u32string latin_excluded_;
  std::u32string unmarked_;             // letters that Vietnamese puts marks on
  std::u32string marks_;                // combining
  std::vector<std::u32string> marked_;  // by mark, letters with it
};

/// $KVARENA_HOME/langdetect, which holds the package's data.
[[nodiscard]] std::filesystem::path langdetect_folder();

/// The detector of the data there, loaded at the first call.
[[nodiscard]] const LanguageDetector& language_detector();

}  // namespace kvarena::metrics
