#include "metrics/algorithms/porter.h"

#include <array>
#include <span>
#include <string_view>
#include <unordered_map>

namespace kvarena::metrics {
namespace {

bool is_vowel_letter(char c) { return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u'; }

// A y is a consonant at the start of a word and after a vowel.
bool is_consonant(std::string_view word, size_t at) {
  bool consonant = false;
  for (size_t i = 0; i <= at; ++i) {
    consonant = !is_vowel_letter(word[i]) && (word[i] != 'y' || i == 0 || !consonant);
  }
  return consonant;
}

// Porter's m: how often a vowel is followed by a consonant.
int measure(std::string_view stem) {
  int m = 0;
  bool vowel_before = false;
  for (size_t i = 0; i < stem.size(); ++i) {
    const bool consonant = is_consonant(stem, i);
    if (consonant && vowel_before) ++m;
    vowel_before = !consonant;
  }
  return m;
}

bool contains_vowel(std::string_view stem) {
  for (size_t i = 0; i < stem.size(); ++i) {
    if (!is_consonant(stem, i)) return true;
  }
  return false;
}

bool ends_double_consonant(std::string_view word) {
  return word.size() >= 2 && word.back() == word[word.size() - 2] && is_consonant(word, word.size() - 1);
}

// *o: consonant, vowel, consonant other than w, x, y; NLTK adds two-letter words of vowel and consonant.
bool ends_cvc(std::string_view word) {
  const size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  return n >= 3 && is_consonant(word, n - 3) && !is_consonant(word, n - 2) && is_consonant(word, n - 1) &&
         word[n - 1] != 'w' && word[n - 1] != 'x' && word[n - 1] != 'y';
}

struct Rule {
  std::string_view suffix, replacement;
};

// The first rule whose suffix the word has decides: its stem must have a measure above `above`, else the word stays.
std::string apply(const std::string& word, std::span<const Rule> rules, int above) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string stem = word.substr(0, word.size() - rule.suffix.size());
    return measure(stem) > above ? stem + std::string(rule.replacement) : word;
  }
  return word;
}

std::string step1a(const std::string& word) {
  if (word.ends_with("ies")) return word.substr(0, word.size() - (word.size() == 4 ? 1 : 2));
  if (word.ends_with("sses")) return word.substr(0, word.size() - 2);
  if (word.ends_with("ss") || !word.ends_with("s")) return word;
  return word.substr(0, word.size() - 1);
}

std::string after_ed_or_ing(const std::string& stem) {
  for (const std::string_view suffix : {"at", "bl", "iz"}) {
    if (stem.ends_with(suffix)) return stem + "e";
  }
  if (ends_double_consonant(stem)) {
    const char last = stem.back();
    return last == 'l' || last == 's' || last == 'z' ? stem : stem.substr(0, stem.size() - 1);
  }
  return measure(stem) == 1 && ends_cvc(stem) ? stem + "e" : stem;
}

std::string step1b(const std::string& word) {
  if (word.ends_with("ied")) return word.substr(0, word.size() - (word.size() == 4 ? 1 : 2));
  if (word.ends_with("eed")) {
    return measure(std::string_view(word).substr(0, word.size() - 3)) > 0 ? word.substr(0, word.size() - 1) : word;
  }
  for (const std::string_view suffix : {"ed", "ing"}) {
    if (!word.ends_with(suffix)) continue;
    const std::string stem = word.substr(0, word.size() - suffix.size());
    if (contains_vowel(stem)) return after_ed_or_ing(stem);
  }
  return word;
}

std::string step1c(std::string word) {
  if (word.ends_with("y") && word.size() > 2 && is_consonant(word, word.size() - 2)) word.back() = 'i';
  return word;
}

std::string step2(const std::string& word) {
  static constexpr std::array<Rule, 21> kRules = {
      {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"},
       {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"}, {"eli", "e"},     {"ousli", "ous"},
       {"ization", "ize"}, {"ation", "ate"},   {"ator", "ate"},  {"alism", "al"},  {"iveness", "ive"},
       {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},  {"iviti", "ive"}, {"biliti", "ble"},
       {"fulli", "ful"}}};
  const auto positive_without = [&](size_t letters) {
    return measure(std::string_view(word).substr(0, word.size() - letters)) > 0;
  };
  if (word.ends_with("alli") && positive_without(4)) return step2(word.substr(0, word.size() - 2));
  if (word.ends_with("logi")) return positive_without(3) ? word.substr(0, word.size() - 1) : word;
  return apply(word, kRules, 0);
}

std::string step3(const std::string& word) {
  static constexpr std::array<Rule, 7> kRules = {
      {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""}, {"ness", ""}}};
  return apply(word, kRules, 0);
}

std::string step4(const std::string& word) {
  static constexpr std::array<Rule, 18> kRules = {{{"al", ""},
                                                   {"ance", ""},
                                                   {"ence", ""},
                                                   {"er", ""},
                                                   {"ic", ""},
                                                   {"able", ""},
                                                   {"ible", ""},
                                                   {"ant", ""},
                                                   {"ement", ""},
                                                   {"ment", ""},
                                                   {"ent", ""},
                                                   {"ou", ""},
                                                   {"ism", ""},
                                                   {"ate", ""},
                                                   {"iti", ""},
                                                   {"ous", ""},
                                                   {"ive", ""},
                                                   {"ize", ""}}};
  if (!word.ends_with("ion")) return apply(word, kRules, 1);
  const std::string stem = word.substr(0, word.size() - 3);
  return measure(stem) > 1 && (stem.back() == 's' || stem.back() == 't') ? stem : word;
}

std::string step5(std::string word) {
  if (word.ends_with("e")) {
    const std::string stem = word.substr(0, word.size() - 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) word = stem;
  }
  if (word.ends_with("ll") && measure(std::string_view(word).substr(0, word.size() - 1)) > 1) word.pop_back();
  return word;
}

}  // namespace

std::string porter_stem(std::string word) {
  static const std::unordered_map<std::string, std::string> kIrregular = {
      {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
      {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
      {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
      {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};
  const auto irregular = kIrregular.find(word);
  if (irregular != kIrregular.end()) return irregular->second;
  if (word.size() <= 2) return word;
  return step5(step4(step3(step2(step1c(step1b(step1a(word)))))));
}

}  // namespace kvarena::metrics
