#include "metrics/algorithms/langdetect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "harness/core/python_random.h"
#include "metrics/algorithms/package_data.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

constexpr const char* kPackage = "langdetect 1.0.9";

// Languages of its profiles, which are files of these names.
constexpr auto kLanguages =
    std::to_array<const char*>({"af", "ar", "bg", "bn", "ca", "cs", "cy", "da", "de", "el", "en", "es",    "et",   "fa",
                                "fi", "fr", "gu", "he", "hi", "hr", "hu", "id", "it", "ja", "kn", "ko",    "lt",   "lv",
                                "mk", "ml", "mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk",    "sl",   "so",
                                "sq", "sv", "sw", "ta", "te", "th", "tl", "tr", "uk", "ur", "vi", "zh-cn", "zh-tw"});

constexpr size_t kLongestText = 10'000;  // characters
constexpr int kTrials = 7;
constexpr int kMostDraws = 1000;    // of a trial
constexpr double kSmoothing = 0.5;  // mean, in units of 1 / kFrequencies
constexpr double kSmoothingWidth = 0.05;
constexpr double kFrequencies = 10'000;
constexpr double kConverged = 0.99999;
constexpr double kLikely = 0.1;

bool is_between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// The value of a line: characters and \uXXXX.
std::u32string unescaped(std::string_view value, const std::filesystem::path& file) {
  std::u32string text;
  for (size_t i = 0; i < value.size();) {
    if (value[i] != '\\') {
      text.push_back(next_code_point(value, i));
      continue;
    }
    uint32_t code = 0;
    const std::string_view digits = value.substr(i).starts_with("\\u") ? value.substr(i + 2, 4) : "";
    if (digits.size() < 4 || std::from_chars(digits.data(), digits.data() + 4, code, 16).ptr != digits.data() + 4) {
      fail_package_file(file, kPackage, fmt::format("an unknown escape \"{}\"", value.substr(i, 6)));
    }
    text.push_back(code);
    i += 6;
  }
  return text;
}

// Divides by the sum; returns the largest.
double normalize(std::vector<double>& values) {
  double sum = 0, most = 0;
  for (const double value : values) sum += value;
  for (double& value : values) most = std::max(most, value /= sum);
  return most;
}

}  // namespace

LanguageDetector::LanguageDetector(const std::filesystem::path& folder) {
  load_messages(folder / "messages.properties");
  for (const char* language : kLanguages) {
    load_profile(folder / "profiles" / language, languages_.size());
    languages_.emplace_back(language);
  }
}

// Lines "key=value".
void LanguageDetector::load_messages(const std::filesystem::path& file) {
  std::unordered_map<std::string, std::u32string> messages;
  for (const std::string& line : split_on(read_package_file(file, kPackage), "\n")) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    std::u32string value = unescaped(strip(std::string_view(line).substr(equals + 1)), file);
    if (key.starts_with("NGram.KANJI_")) {
      for (const char32_t c : value) ideographs_[c] = value.front();
    } else {
      messages[key] = std::move(value);
    }
  }
  const auto message = [&](const std::string& key) {
    if (!messages.contains(key)) fail_package_file(file, kPackage, fmt::format("no line \"{}=\"", key));
    return messages[key];
  };
  latin_excluded_ = message("NGram.LATIN1_EXCLUDE");
  unmarked_ = message("TO_NORMALIZE_VI_CHARS");
  marks_ = message("DMARK_CLASS");
  for (const char32_t mark : marks_) {
    marked_.push_back(message(fmt::format("NORMALIZED_VI_CHARS_{:04X}", static_cast<uint32_t>(mark))));
    if (marked_.back().size() < unmarked_.size())
      fail_package_file(file, kPackage, "letters without their marked forms");
  }
}

// {"freq": {n-gram: count}, "n_words": [count of n-grams of 1, 2, 3 characters]}
void LanguageDetector::load_profile(const std::filesystem::path& file, size_t language) {
  const nlohmann::json profile = nlohmann::json::parse(read_package_file(file, kPackage), nullptr, false);
  const auto of = [&](const char* name) {
    return profile.is_object() ? profile.value(name, nlohmann::json()) : profile;
  };
  const nlohmann::json frequencies = of("freq"), totals = of("n_words");
  if (!frequencies.is_object() || !totals.is_array() || totals.size() < 3) {
    fail_package_file(file, kPackage, "no JSON object with freq and n_words");
  }
  for (const auto& [gram, count] : frequencies.items()) {
    const std::u32string key = decode_utf8(gram);
    if (key.empty() || key.size() > 3 || !count.is_number()) continue;
    std::vector<double>& probabilities = probabilities_[key];
    probabilities.resize(kLanguages.size());
    probabilities[language] = count.get<double>() / totals[key.size() - 1].get<double>();
  }
}

// Letters and combining marks that follow them, as one letter each.
std::u32string LanguageDetector::with_vietnamese_marks(std::u32string text) const {
  size_t end = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t letter = unmarked_.find(text[i]);
    const size_t mark = i + 1 < text.size() ? marks_.find(text[i + 1]) : std::u32string::npos;
    if (letter != std::u32string::npos && mark != std::u32string::npos) {
      text[end++] = marked_[mark][letter];
      ++i;
    } else {
      text[end++] = text[i];
    }
  }
  text.resize(end);
  return text;
}

// The start of a text without addresses and, where most letters are others, without Latin letters.
std::u32string LanguageDetector::cleaned(std::string_view text) const {
  static const Regex kUrl("https?://[-_.?&~;+=/#0-9A-Za-z]{1,2076}");
  static const Regex kMail("[-_.0-9A-Za-z]{1,64}@[-_0-9A-Za-z]{1,255}[-_.0-9A-Za-z]{1,255}");
  const auto blank = [](const RegexMatch&) { return std::string(" "); };
  std::u32string all = with_vietnamese_marks(decode_utf8(kMail.sub(kUrl.sub(text, blank), blank)));
  all.resize(std::min(all.size(), kLongestText));
  all.erase(std::unique(all.begin(), all.end(), [](char32_t a, char32_t b) { return a == U' ' && b == U' '; }),
            all.end());
  const auto is_latin = [](char32_t c) { return is_between(c, U'A', U'z'); };
  const auto latin = std::ranges::count_if(all, is_latin);
  const auto other = std::ranges::count_if(all, [](char32_t c) { return c >= 0x300; });
  if (latin * 2 < other) std::erase_if(all, is_latin);
  return all;
}

// One character for all of a block that tells languages by being there.
char32_t LanguageDetector::normalized(char32_t c) const {
  if (c < 0x80) return is_between(c, U'A', U'Z') || is_between(c, U'a', U'z') ? c : U' ';
  if (c < 0x100) return latin_excluded_.find(c) == std::u32string::npos ? c : U' ';
  if (c == 0x219) return 0x15F;  // Romanian letters with a comma as those with a cedilla
  if (c == 0x21B) return 0x163;
  if (c == 0x6CC) return 0x64A;                                                       // Farsi yeh as Arabic yeh
  if (is_between(c, 0x1EA0, 0x1EFF)) return 0x1EC3;                                   // Vietnamese letters
  if (is_between(c, 0x2000, 0x206F)) return U' ';                                     // punctuation
  if (is_between(c, 0x3040, 0x309F)) return 0x3042;                                   // hiragana
  if (is_between(c, 0x30A0, 0x30FF)) return 0x30A2;                                   // katakana
  if (is_between(c, 0x3100, 0x312F) || is_between(c, 0x31A0, 0x31BF)) return 0x3105;  // bopomofo
  if (is_between(c, 0xAC00, 0xD7AF)) return 0xAC00;                                   // hangul
  const auto ideograph = ideographs_.find(c);
  return ideograph == ideographs_.end() ? c : ideograph->second;
}

// Probabilities of each known n-gram of a text, in order; words with two capitals in a row give none.
std::vector<const std::vector<double>*> LanguageDetector::ngrams(std::u32string_view text) const {
  std::vector<const std::vector<double>*> found;
  std::u32string last(1, U' ');  // up to three characters of the word at hand, with the blank before it
  bool capital_word = false;
  for (const char32_t written : text) {
    const char32_t c = normalized(written);
    const char32_t before = last.back();
    if (before == U' ') {
      last.assign(1, U' ');
      capital_word = false;
    } else if (last.size() >= 3) {
      last.erase(0, 1);
    }
    if (c != U' ' || before != U' ') {
      last.push_back(c);
      capital_word = is_upper(c) && (capital_word || is_upper(before));
    }
    if (capital_word) continue;
    for (size_t n = 1; n <= last.size(); ++n) {
      if (n == 1 && last.back() == U' ') continue;
      const auto known = probabilities_.find(last.substr(last.size() - n));
      if (known != probabilities_.end()) found.push_back(&known->second);
    }
  }
  return found;
}

std::optional<std::string> LanguageDetector::detect(std::string_view text) const {
  const auto grams = ngrams(cleaned(text));
  if (grams.empty()) return std::nullopt;
  PythonRandom random(0);
  std::vector<double> mean(languages_.size());
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> likely(languages_.size(), 1.0 / static_cast<double>(languages_.size()));
    const double smoothing = (kSmoothing + random.gauss() * kSmoothingWidth) / kFrequencies;
    for (int draw = 0;; ++draw) {
      const std::vector<double>& gram = *grams[random.below(static_cast<uint32_t>(grams.size()))];
      for (size_t i = 0; i < likely.size(); ++i) likely[i] *= smoothing + gram[i];
      if (draw % 5 == 0 && (normalize(likely) > kConverged || draw >= kMostDraws)) break;
    }
    for (size_t i = 0; i < likely.size(); ++i) mean[i] += likely[i] / kTrials;
  }
  const auto best = std::ranges::max_element(mean);
  return *best > kLikely ? languages_[static_cast<size_t>(best - mean.begin())] : "unknown";
}

std::filesystem::path langdetect_folder() { return package_folder("langdetect"); }

const LanguageDetector& language_detector() {
  static const LanguageDetector kDetector(langdetect_folder());
  return kDetector;
}

}  // namespace kvarena::metrics
