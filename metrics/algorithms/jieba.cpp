#include "metrics/algorithms/jieba.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "metrics/algorithms/package_data.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Hidden states in the order that decides ties: Python compares their letters.
enum State { B = 0, E = 1, M = 2, S = 3 };
constexpr const char* kDictionary = "dict.txt";
constexpr const char* kEmissions = "finalseg/prob_emit.py";
constexpr double kNever = -3.14e100;  // jieba's log of zero

constexpr std::array<double, 4> kStart = {-0.26268660809250016, kNever, kNever, -1.4652633398537678};

struct Previous {
  State state;
  double log_probability;  // of going from `state` to the state at hand
};

// The two states that can stand before each state.
constexpr std::array<std::array<Previous, 2>, 4> kPrevious = {{
    {{{E, -0.5897149736854513}, {S, -0.7211965654669841}}},  // B
    {{{B, -0.510825623765990}, {M, -0.33344856811948514}}},  // E
    {{{M, -1.2603623820268226}, {B, -0.916290731874155}}},   // M
    {{{S, -0.6658631448798212}, {E, -0.8085250474669937}}},  // S
}};

bool is_han(char32_t c) { return c >= 0x4E00 && c <= 0x9FD5; }
bool is_ascii_alnum(char32_t c) {
  return (c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
}
bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
// [\u4E00-\u9FD5a-zA-Z0-9+#&\._%\-]: what blocks of words are made of.
bool is_block_character(char32_t c) {
  return is_han(c) || is_ascii_alnum(c) ||
         (c < 0x80 && std::u32string_view(U"+#&._%-").find(c) != std::u32string_view::npos);
}

constexpr const char* kPackage = "jieba 0.42.1";

}  // namespace

std::filesystem::path jieba_folder() { return package_folder("jieba"); }

std::vector<std::filesystem::path> jieba_files() { return {jieba_folder() / kDictionary, jieba_folder() / kEmissions}; }

const Jieba& jieba() {
  static const Jieba kJieba(jieba_folder());
  return kJieba;
}

Jieba::Jieba(const std::filesystem::path& folder) {
  load_dictionary(folder / kDictionary);
  load_emissions(folder / kEmissions);
}

// Lines "word frequency tag".
void Jieba::load_dictionary(const std::filesystem::path& file) {
  const std::string content = read_package_file(file, kPackage);
  frequencies_.reserve(600'000);
  int64_t total = 0;
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    ++number;
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = std::string_view(content).substr(at, end - at);
    at = end + 1;
    if (strip(line).empty()) continue;
    const size_t blank = line.find(' ');
    int64_t frequency = 0;
    const char* digits = line.data() + std::min(blank, line.size() - 1) + 1;
    const auto [stop, error] = std::from_chars(digits, line.data() + line.size(), frequency);
    if (blank == std::string_view::npos || error != std::errc{}) {
      fail_package_file(file, kPackage,
                        fmt::format("line {} \"{}\" without a word and its frequency", number, line.substr(0, 40)));
    }
    const std::u32string word = decode_utf8(line.substr(0, blank));
    frequencies_[word] = frequency;
    total += frequency;
    for (size_t length = 1; length < word.size(); ++length) frequencies_.try_emplace(word.substr(0, length), 0);
  }
  if (total == 0) fail_package_file(file, kPackage, "no words");
  log_total_ = std::log(static_cast<double>(total));
}

// A Python literal P={'B': {'\u4e00': -3.65, ...}, 'E': ...}: state letters open a table, escapes are characters.
void Jieba::load_emissions(const std::filesystem::path& file) {
  const std::string content = read_package_file(file, kPackage);
  std::unordered_map<char32_t, double>* table = nullptr;
  for (size_t at = content.find('\''); at != std::string::npos;) {
    const size_t end = content.find('\'', at + 1);
    if (end == std::string::npos) break;
    const std::string_view key = std::string_view(content).substr(at + 1, end - at - 1);
    uint32_t character = 0;
    if (key.size() == 1 && std::string_view("BEMS").find(key[0]) != std::string_view::npos) {
      table = &emissions_[std::string_view("BEMS").find(key[0])];
    } else if (table != nullptr && key.starts_with("\\u") &&
               std::from_chars(key.data() + 2, key.data() + key.size(), character, 16).ec == std::errc{}) {
      (*table)[character] = std::strtod(content.c_str() + std::min(end + 2, content.size()), nullptr);
    } else {
      fail_package_file(file, kPackage, fmt::format("an unknown entry '{}'", key.substr(0, 20)));
    }
    at = content.find('\'', end + 1);
  }
  for (const auto& emissions : emissions_) {
    if (emissions.empty()) fail_package_file(file, kPackage, "a table without entries");
  }
}

int64_t Jieba::frequency(Text word) const {
  const auto found = frequencies_.find(word);
  return found == frequencies_.end() ? 0 : found->second;
}

// For each start the end of its word on the path of highest probability; of equal paths the longer word.
std::vector<size_t> Jieba::best_ends(Text block) const {
  const size_t n = block.size();
  std::vector<double> route(n + 1, 0.0);
  std::vector<size_t> ends(n);
  for (size_t start = n; start-- > 0;) {
    bool any = false;
    const auto consider = [&](size_t end, int64_t count) {
      const double p = std::log(static_cast<double>(count == 0 ? 1 : count)) - log_total_ + route[end];
      if (!any || p >= route[start]) {
        route[start] = p;
        ends[start] = end;
      }
      any = true;
    };
    for (size_t end = start + 1; end <= n; ++end) {
      const auto found = frequencies_.find(block.substr(start, end - start));
      if (found == frequencies_.end()) break;
      if (found->second > 0) consider(end, found->second);
    }
    if (!any) consider(start + 1, frequency(block.substr(start, 1)));
  }
  return ends;
}

void Jieba::cut_block(Text block, Pieces& out) const {
  const std::vector<size_t> ends = best_ends(block);
  std::u32string buffer;  // a run of single characters
  for (size_t start = 0; start < block.size(); start = ends[start]) {
    if (ends[start] - start == 1) {
      buffer.push_back(block[start]);
      continue;
    }
    flush_single_characters(buffer, out);
    out.emplace_back(block.substr(start, ends[start] - start));
  }
  flush_single_characters(buffer, out);
}

// A run that is no word of the dictionary goes to the hidden Markov model, else it stays single characters.
void Jieba::flush_single_characters(std::u32string& buffer, Pieces& out) const {
  if (buffer.size() == 1 || (!buffer.empty() && frequency(buffer) > 0)) {
    for (const char32_t c : buffer) out.emplace_back(1, c);
  } else if (!buffer.empty()) {
    cut_unknown(buffer, out);
  }
  buffer.clear();
}

// Han runs by the model; the rest by [a-zA-Z0-9]+(\.\d+)?%? and what lies between.
void Jieba::cut_unknown(Text text, Pieces& out) const {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    if (is_han(text[i])) {
      while (end < text.size() && is_han(text[end])) ++end;
      cut_by_hmm(text.substr(i, end - i), out);
    } else if (is_ascii_alnum(text[i])) {
      while (end < text.size() && is_ascii_alnum(text[end])) ++end;
      if (end + 1 < text.size() && text[end] == U'.' && is_digit(text[end + 1])) {
        for (++end; end < text.size() && is_digit(text[end]);) ++end;
      }
      if (end < text.size() && text[end] == U'%') ++end;
      out.emplace_back(text.substr(i, end - i));
    } else {
      while (end < text.size() && !is_han(text[end]) && !is_ascii_alnum(text[end])) ++end;
      out.emplace_back(text.substr(i, end - i));
    }
    i = end;
  }
}

// Viterbi over the states beginning, end, middle of a word and single; words follow from the best path.
void Jieba::cut_by_hmm(Text run, Pieces& out) const {
  const size_t n = run.size();
  const auto emission = [&](State state, char32_t c) {
    const auto found = emissions_[state].find(c);
    return found == emissions_[state].end() ? kNever : found->second;
  };
  std::vector<std::array<double, 4>> best(n);   // log probability of the best path that ends in a state
  std::vector<std::array<State, 4>> before(n);  // the state before on that path
  for (const State state : {B, E, M, S}) best[0][state] = kStart[state] + emission(state, run[0]);
  for (size_t t = 1; t < n; ++t) {
    for (const State state : {B, E, M, S}) {
      const double e = emission(state, run[t]);
      const auto& [first, second] = kPrevious[state];
      const double p = best[t - 1][first.state] + first.log_probability + e;
      const double q = best[t - 1][second.state] + second.log_probability + e;
      const bool take_second = q > p || (q == p && second.state > first.state);
      best[t][state] = take_second ? q : p;
      before[t][state] = take_second ? second.state : first.state;
    }
  }
  std::vector<State> states(n);
  states[n - 1] = best[n - 1][S] >= best[n - 1][E] ? S : E;
  for (size_t t = n - 1; t > 0; --t) states[t - 1] = before[t][states[t]];
  size_t next = 0;
  for (size_t i = 0; i < n; ++i) {
    if (states[i] != E && states[i] != S) continue;
    const size_t begin = states[i] == S ? i : next;
    out.emplace_back(run.substr(begin, i + 1 - begin));
    next = i + 1;
  }
  if (next < n) out.emplace_back(run.substr(next));
}

std::vector<std::string> Jieba::cut(std::string_view utf8) const {
  const std::u32string text = decode_utf8(utf8);
  Pieces pieces;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_block_character(text[end])) ++end;
    if (end > i) {
      cut_block(Text(text).substr(i, end - i), pieces);
      i = end;
    } else {  // other characters one by one, a Windows line end as one
      const size_t length = text[i] == U'\r' && i + 1 < text.size() && text[i + 1] == U'\n' ? 2 : 1;
      pieces.emplace_back(text.substr(i, length));
      i += length;
    }
  }
  std::vector<std::string> words;
  words.reserve(pieces.size());
  for (const std::u32string& piece : pieces) words.push_back(encode_utf8(piece));
  return words;
}

}  // namespace kvarena::metrics
