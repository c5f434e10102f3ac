#include "metrics/algorithms/english_sentences.h"

#include <fmt/format.h>

#include <charconv>

#include "metrics/algorithms/package_data.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Places and cases in which the training text had a word, as the model's bits.
constexpr int64_t kMiddleUpper = 4, kBeginningLower = 16, kUpper = 2 + 4 + 8, kLower = 16 + 32 + 64;

// Patterns of characters that are no part of a word, and of marks of several characters.
constexpr const char* kNoWord = R"re((?:[)";}\]*:@'({\[‘’“”«»?!]))re";
constexpr const char* kMarks = R"((?:-{2,}|\.{2,}|(?:\.\s){2,}\.))";

constexpr const char* kPackage = "llama-index-core 0.14.25, which ships NLTK's punkt_tab";
constexpr const char* kAbbreviations = "abbrev_types.txt";
constexpr const char* kStarters = "sent_starters.txt";
constexpr const char* kCollocations = "collocations.tab";
constexpr const char* kCases = "ortho_context.tab";

// Lines that are not empty.
std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines = split_on(read_package_file(file, kPackage), "\n");
  std::erase(lines, "");
  if (lines.empty()) fail_package_file(file, kPackage, "no lines");
  return lines;
}

// Pattern of a word without the punctuation around it, or of a single mark; a full stop stays with its word.
std::string word_pattern() {
  const std::string marks = kMarks, ends = std::string(kNoWord) + "|" + marks;
  return "(?:" + marks + R"re(|(?=[^("`{\[:;&#*@)}\]\-,])\S+?(?=\s|$|)re" + ends + R"(|,(?=$|\s|)" + ends + R"())|\S))";
}

char32_t first_character(std::string_view text) {
  size_t at = 0;
  return next_code_point(text, at);
}

}  // namespace

struct Punkt::Slice {
  size_t begin, end;
};

struct Punkt::Token {
  explicit Token(std::string_view written) : text(written) {
    static const Regex kNumber(R"(^-?[.,]?\d[\d,.-]*\.?$)"), kInitial(R"(\A[^\W\d]\.$)"), kEllipsis(R"(\A\.\.+$)");
    type = kNumber.sub(lower(text), [](const RegexMatch&) { return "##number##"; });
    ends_in_period = text.ends_with('.');
    is_initial = !kInitial.search(text).empty();
    is_ellipsis = !kEllipsis.search(text).empty();
  }

  [[nodiscard]] std::string without_period() const {
    return type.size() > 1 && type.ends_with('.') ? type.substr(0, type.size() - 1) : type;
  }
  [[nodiscard]] std::string without_last_period() const { return breaks ? without_period() : type; }

  std::string text;
  std::string type;  // in lower case, numbers as one
  bool ends_in_period;
  bool is_initial;
  bool is_ellipsis;
  bool breaks = false;  // a sentence ends with it
  bool abbreviates = false;
};

Punkt::Punkt(const std::filesystem::path& folder) {
  for (std::string& line : lines_of(folder / kAbbreviations)) abbreviations_.insert(std::move(line));
  for (std::string& line : lines_of(folder / kStarters)) starters_.insert(std::move(line));
  for (std::string& line : lines_of(folder / kCollocations)) collocations_.insert(std::move(line));
  for (const std::string& line : lines_of(folder / kCases)) {
    const size_t tab = std::min(line.find('\t'), line.size());
    const char* digits = line.data() + std::min(tab + 1, line.size());
    int64_t cases = 0;
    if (std::from_chars(digits, line.data() + line.size(), cases).ec != std::errc{}) {
      fail_package_file(folder / kCases, kPackage, fmt::format("a line \"{}\" without a number", line.substr(0, 40)));
    }
    cases_[line.substr(0, tab)] = cases;
  }
}

int64_t Punkt::seen(const std::string& type) const {
  const auto found = cases_.find(type);
  return found == cases_.end() ? 0 : found->second;
}

void Punkt::mark_alone(Token& token) const {
  if (token.text == "." || token.text == "?" || token.text == "!") {
    token.breaks = true;
  } else if (!token.is_ellipsis && token.ends_in_period && !token.text.ends_with("..")) {
    const std::string word = lower(std::string_view(token.text).substr(0, token.text.size() - 1));
    const bool known = abbreviations_.contains(word) || abbreviations_.contains(split_on(word, "-").back());
    (known ? token.abbreviates : token.breaks) = true;
  }
}

Punkt::Starts Punkt::starts_sentence(const Token& token) const {
  if (token.text.size() == 1 && contains(";:,.!?", token.text)) return Starts::no;
  const int64_t cases = seen(token.without_last_period());
  const char32_t first = first_character(token.text);
  if (is_upper(first) && (cases & kLower) != 0 && (cases & kMiddleUpper) == 0) return Starts::yes;
  if (is_lower(first) && ((cases & kUpper) != 0 || (cases & kBeginningLower) == 0)) return Starts::no;
  return Starts::unknown;
}

void Punkt::mark_before(Token& token, const Token& next) const {
  if (!token.ends_in_period) return;
  const std::string type = token.without_period(), next_type = next.without_last_period();
  const bool next_is_upper = is_upper(first_character(next.text));
  if (collocations_.contains(type + "\t" + next_type)) {
    token.breaks = false;
    return;
  }
  if ((token.abbreviates || token.is_ellipsis) && !token.is_initial) {
    if (starts_sentence(next) == Starts::yes || (next_is_upper && starters_.contains(next_type))) {
      token.breaks = true;
      return;
    }
  }
  if (!token.is_initial && type != "##number##") return;
  const Starts starts = starts_sentence(next);
  const bool name = starts == Starts::unknown && token.is_initial && next_is_upper && (seen(next_type) & kLower) == 0;
  if (starts == Starts::no || name) token.breaks = false;
}

// Whether a sentence ends within the text, before its last word.
bool Punkt::has_break(std::string_view text) const {
  static const Regex kWord(word_pattern());
  std::vector<Token> tokens;
  for (const std::string& line : split_on(text, "\n")) {
    for (const RegexMatch& word : kWord.find_all(line)) mark_alone(tokens.emplace_back(word[0]));
  }
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    mark_before(tokens[i], tokens[i + 1]);
    if (tokens[i].breaks) return true;
  }
  return false;
}

// The text cut where a sentence ends: at a full stop, question or exclamation mark, judged by the words beside it.
std::vector<Punkt::Slice> Punkt::slices(std::string_view text) const {
  static const Regex kEnd(R"([.?!](?=()" + std::string(kNoWord) + R"(|\s+(\S+))))");
  struct Place {
    RegexMatch match;
    Slice word;  // before it
  };
  const auto offset = [text](std::string_view part) { return static_cast<size_t>(part.data() - text.data()); };
  std::vector<Place> places;  // of those whose words overlap, the last one
  Slice previous{0, 0};
  for (const RegexMatch& match : kEnd.find_all(text)) {
    const size_t at = offset(match[0]);
    const size_t space = text.substr(previous.end, at - previous.end).find_last_of(" \t\n\r\v\f");
    const bool found = space != std::string_view::npos && space > 0;
    const Slice word{found ? previous.end + space + 1 : previous.begin, at};
    if (!places.empty() && previous.end > word.begin) places.pop_back();
    places.push_back({match, word});
    previous = word;
  }
  std::vector<Slice> slices;
  size_t begin = 0;
  for (const auto& [match, word] : places) {
    const size_t end = offset(match[0]) + match[0].size();
    if (!has_break(fmt::format("{}{}{}", text.substr(word.begin, word.end - word.begin), match[0], match[1]))) continue;
    slices.push_back({begin, end});
    begin = match[2].empty() ? end : offset(match[2]);
  }
  slices.push_back({begin, std::max(begin, rstrip(text).size())});
  return slices;
}

std::vector<std::string_view> Punkt::sentences(std::string_view text) const {
  // Quotes and brackets that close behind an end belong to the sentence before.
  static const Regex kClosing(R"((?m)\A["')\]}‘’“”«»]+?(?:\s+|(?=--)|$))");
  const std::vector<Slice> parts = slices(text);
  std::vector<std::string_view> sentences;
  size_t moved = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t begin = parts[i].begin + moved;
    const std::string_view next =
        i + 1 < parts.size() ? text.substr(parts[i + 1].begin, parts[i + 1].end - parts[i + 1].begin) : "";
    const RegexMatch closing = next.empty() ? RegexMatch() : kClosing.search(next);
    moved = closing.empty() ? 0 : closing[0].size();
    const size_t end = closing.empty() ? parts[i].end : parts[i + 1].begin + rstrip(closing[0]).size();
    if (end > begin) {
      sentences.push_back(text.substr(begin, end - begin));
    } else if (!closing.empty()) {
      sentences.emplace_back();  // NLTK counts it
    }
  }
  return sentences;
}

std::filesystem::path punkt_folder() { return package_folder("punkt"); }

const Punkt& punkt() {
  static const Punkt kPunkt(punkt_folder());
  return kPunkt;
}

}  // namespace kvarena::metrics
