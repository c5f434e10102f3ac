#include <fmt/format.h>

#include "metrics/algorithms/english_sentences.h"
#include "metrics/algorithms/regex.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// A pattern and what takes the place of a match: "\0" the whole, "\1" to "\3" its groups.
struct Rule {
  Regex pattern;
  std::string with;
};

std::string applied(const Rule& rule, std::string_view text) {
  return rule.pattern.sub(text, [&rule](const RegexMatch& match) {
    std::string made;
    for (size_t i = 0; i < rule.with.size(); ++i) {
      if (rule.with[i] == '\\') {
        made.append(match[static_cast<size_t>(rule.with[++i] - '0')]);
      } else {
        made += rule.with[i];
      }
    }
    return made;
  });
}

// Rules before the text gets a space at each end, and those after.
const std::vector<Rule>& first_rules() {
  static const std::vector<Rule> rules = {
      {Regex("([«“‘„]|[`]+)"), R"( \1 )"},
      {Regex(R"(^")"), "``"},
      {Regex("(``)"), R"( \1 )"},
      {Regex(R"(([ (\[{<])("|'{2}))"), R"(\1 `` )"},
      {Regex(R"((?i)(?<!\w)(')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w))"), R"(\1 )"},
      {Regex(R"(([^.])(\.)([\])}>"' »”’ ]*+)\s*$)"), R"(\1 \2 \3 )"},
      {Regex(R"(([:,])([^\d]))"), R"( \1 \2)"},
      {Regex("([:,])$"), R"( \1 )"},
      {Regex(R"(\.{2,})"), R"( \0 )"},
      {Regex("[;@#$%&]"), R"( \0 )"},
      {Regex("[‒-―]"), R"( \0 )"},
      {Regex(R"(([^.])(\.)([\])}>"']*)\s*$)"), R"(\1 \2\3 )"},
      {Regex("[?!]"), R"( \0 )"},
      {Regex("([^'])' "), R"(\1 ' )"},
      {Regex("[*]"), R"( \0 )"},
      {Regex(R"([\]\[(){}<>])"), R"( \0 )"},
      {Regex("--"), " -- "},
  };
  return rules;
}

const std::vector<Rule>& last_rules() {
  static const std::vector<Rule> rules = {
      {Regex("([»”’])"), R"( \1 )"},
      {Regex("''"), " '' "},
      {Regex("\""), " '' "},
      {Regex(R"(\s+)"), " "},
      {Regex("([^' ])('[sS]|'[mM]|'[dD]|') "), R"(\1 \2 )"},
      {Regex("([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), R"(\1 \2 )"},
      {Regex(R"((?i)\b(can)(not)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(d)('ye)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(gim)(me)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(gon)(na)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(got)(ta)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(lem)(me)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(more)('n)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i)\b(wan)(na)(?=\s))"), R"( \1 \2 )"},
      {Regex(R"((?i) ('t)(is)\b)"), R"( \1 \2 )"},
      {Regex(R"((?i) ('t)(was)\b)"), R"( \1 \2 )"},
  };
  return rules;
}

}  // namespace

std::vector<std::string> treebank_words(std::string_view sentence) {
  std::string text(sentence);
  for (const Rule& rule : first_rules()) text = applied(rule, text);
  text = fmt::format(" {} ", text);
  for (const Rule& rule : last_rules()) text = applied(rule, text);
  return split_white_space(text);
}

}  // namespace kvarena::metrics
