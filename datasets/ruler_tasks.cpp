#include "datasets/ruler_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "datasets/prompt.h"
#include "datasets/texts/essays.h"
#include "datasets/texts/worlds.h"

namespace kvarena::datasets {
namespace {

constexpr std::string_view kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, done)) {
    result.append(text.substr(done, at - done)).append(by);
    done = at + what.size();
  }
  return result.append(text.substr(done));
}

std::string number_of(Draw& draw, int digits) {
  std::string text(1, static_cast<char>('1' + draw.below(9)));
  while (text.size() < static_cast<size_t>(digits)) text.push_back(static_cast<char>('0' + draw.below(10)));
  return text;
}

std::string uuid(Draw& draw) {
  std::string text;
  for (const int run : {8, 4, 4, 4, 12}) {
    if (!text.empty()) text.push_back('-');
    for (int i = 0; i < run; ++i) text.push_back("0123456789abcdef"[draw.below(16)]);
  }
  return text;
}

// --- needles ---------------------------------------------------------------------------------------------------

std::string needle(const RulerTask& task, const std::string& key, const std::string& value) {
  return fmt::format("One of the special magic {} for {} is: {}.", task.uuid_values ? "uuids" : "numbers", key, value);
}

std::string key_of(const RulerTask& task, Draw& draw) { return task.uuid_keys ? uuid(draw) : code_word(draw); }
std::string value_of(const RulerTask& task, Draw& draw) { return task.uuid_values ? uuid(draw) : number_of(draw, 7); }

std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> sentences;
  size_t begin = 0;
  for (size_t stop = text.find('.'); stop != std::string::npos; stop = text.find('.', stop + 1)) {
    begin = text.find_first_not_of(" \n", begin);
    sentences.push_back(text.substr(begin, stop + 1 - begin));
    begin = stop + 1;
  }
  return sentences;
}

// Essay sentences joined by blanks, needles at depths drawn from 40 values of 0..100 without repetition.
std::string in_essay(std::vector<std::string> needles, Draw& draw, int64_t hay) {
  std::vector<std::string> sentences = sentences_of(write_essays(draw.below(1u << 20), static_cast<size_t>(hay) * 120));
  sentences.resize(std::min(sentences.size(), static_cast<size_t>(hay)));
  std::vector<size_t> places;
  for (const size_t step : draw.choose(needles.size(), 40)) {
    const double depth = std::nearbyint(static_cast<double>(step) * 100 / 39);
    places.push_back(static_cast<size_t>(static_cast<double>(sentences.size()) * depth / 100));
  }
  std::sort(places.rbegin(), places.rend());
  for (const size_t place : places) {  // from the last to the first, so that places stay true
    sentences.insert(sentences.begin() + static_cast<ptrdiff_t>(place), needles.back());
    needles.pop_back();
  }
  return fmt::format("{}", fmt::join(sentences, " "));
}

std::string in_lines(const RulerTask& task, const std::vector<std::string>& needles, Draw& draw, int64_t hay) {
  std::vector<std::string> lines;
  for (int64_t i = 0; i < hay; ++i) {
    lines.push_back(task.haystack == 'n' ? std::string(kNoise)
                                         : needle(task, key_of(task, draw), value_of(task, draw)));
  }
  for (const std::string& one : needles) {
    lines.insert(lines.begin() + static_cast<ptrdiff_t>(draw.below(lines.size() + 1)), one);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string listed(const std::vector<std::string>& words) {
  if (words.size() == 1) return words[0];
  return fmt::format("{}, and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

// One query with one value: the official code edits the template by plain replacement.
std::string singular(std::string text) {
  text = replaced(text, "Some", "A");
  text = replaced(text, "are all", "is");
  text = replaced(text, "are", "is");
  return replaced(text, "answers", "answer");
}

RulerRow make_needles(const RulerTask& task, Draw& draw, int64_t hay) {
  const auto keys = static_cast<size_t>(std::max(task.keys, task.queries * task.questions));
  std::set<std::string> seen;
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> values;
  std::vector<std::string> needles;
  while (names.size() < keys) {
    const std::string key = key_of(task, draw);
    if (!seen.insert(key).second) continue;
    names.push_back(key);
    values.emplace_back();
    for (int v = 0; v < task.values; ++v) {
      values.back().push_back(value_of(task, draw));
      needles.push_back(needle(task, key, values.back().back()));
    }
  }
  draw.shuffle(needles);
  RulerRow row;
  std::vector<std::string> asked;
  const auto queries = static_cast<size_t>(task.queries);
  const std::vector<size_t> order = draw.choose(queries * static_cast<size_t>(task.questions), keys);
  for (const size_t k : std::span(order).subspan(queries * static_cast<size_t>(task.question), queries)) {
    asked.push_back(names[k]);
    row.outputs.insert(row.outputs.end(), values[k].begin(), values[k].end());
  }
  std::string form =
      "Some special magic {type} are hidden within the following text. Make sure to memorize it. I will quiz you about "
      "the {type} afterwards.\n{context}\nWhat are all the special magic {type} for {query} mentioned in the provided "
      "text?";
  std::string prefix = " The special magic {type} for {query} mentioned in the provided text are";
  std::string type = task.uuid_values ? "uuids" : "numbers";
  if (task.queries * task.values == 1) {
    form = singular(form);
    prefix = singular(prefix);
    type.pop_back();
  }
  const std::string context = task.haystack == 'e' ? in_essay(needles, draw, hay) : in_lines(task, needles, draw, hay);
  const std::string query = listed(asked);
  Rendered input = render(form, {{"type", type}, {"context", context}, {"query", query}});
  row.input = std::move(input.text);
  row.question = input.question;
  row.answer_prefix = render(prefix, {{"type", type}, {"query", query}}).text;
  return row;
}

// --- variable tracking -------------------------------------------------------------------------------------------

std::string variable(Draw& draw) {
  std::string name;
  for (int i = 0; i < 5; ++i) name.push_back(static_cast<char>('A' + draw.below(26)));
  return name;
}

constexpr std::string_view kTracking =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\nQuestion: Find "
    "all variables that are assigned the value {query} in the text above.";
constexpr std::string_view kTrackingPrefix =
    " Answer: According to the chain(s) of variable assignment in the text above, {num_v} variables are assigned the "
    "value {query}, they are: ";

RulerRow make_chain(Draw& draw, int64_t hay) {
  RulerRow row;
  const std::string value = number_of(draw, 5);
  std::vector<std::string> chain;
  while (row.outputs.size() < 5) {
    const std::string name = variable(draw);
    if (std::find(row.outputs.begin(), row.outputs.end(), name) != row.outputs.end()) continue;
    chain.push_back(row.outputs.empty() ? fmt::format("VAR {} = {}", name, value)
                                        : fmt::format("VAR {} = VAR {} ", name, row.outputs.back()));
    row.outputs.push_back(name);
  }
  std::vector<std::string> lines(static_cast<size_t>(hay), std::string(kNoise));
  std::vector<size_t> places;
  for (size_t i = 0; i < chain.size(); ++i) places.push_back(draw.below(lines.size() + 1));
  std::sort(places.begin(), places.end());  // a variable is assigned before it is used
  for (size_t i = chain.size(); i-- > 0;) lines.insert(lines.begin() + static_cast<ptrdiff_t>(places[i]), chain[i]);
  const std::string context = fmt::format("{}", fmt::join(lines, "\n"));
  Rendered input = render(kTracking, {{"context", context}, {"query", value}});
  row.input = std::move(input.text);
  row.question = input.question;
  row.answer_prefix = render(kTrackingPrefix, {{"num_v", "5"}, {"query", value}}).text;
  return row;
}

RulerRow after_example(const RulerRow& example, RulerRow row, const std::string& answer) {
  const std::string worked = fmt::format("{}{}{}\n\n", example.input, example.answer_prefix, answer);
  row.question += worked.size();
  row.input = fmt::format("{}{}", worked, row.input);
  return row;
}

RulerRow make_tracking(const RulerTask&, Draw& draw, int64_t hay) {
  const RulerRow example = make_chain(draw, 5);
  return after_example(example, make_chain(draw, hay), fmt::format("{}", fmt::join(example.outputs, " ")));
}

// --- word counts -------------------------------------------------------------------------------------------------

RulerRow make_word_list(Draw& draw, size_t others, int common_times, int other_times) {
  constexpr size_t kCommon = 10;
  std::set<std::string> seen;
  std::vector<std::string> words;
  while (words.size() < kCommon + others) {
    // Two words and, when those run out, a number: other words than in any dictionary, as the official pairs.
    const std::string word = replaced(code_word(draw), "-", "");
    const std::string unique = words.size() < 300 ? word : fmt::format("{}{}", word, number_of(draw, 3));
    if (seen.insert(unique).second) words.push_back(unique);
  }
  std::vector<std::string> list;
  for (size_t i = 0; i < words.size(); ++i) {
    list.insert(list.end(), static_cast<size_t>(i < kCommon ? common_times : other_times), words[i]);
  }
  draw.shuffle(list);
  std::string context;
  for (size_t i = 0; i < list.size(); ++i) context.append(fmt::format("{}{}. {}", i ? " " : "", i + 1, list[i]));
  Rendered input = render(
      "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
      "appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list?",
      {{"context", context}});
  return {.input = std::move(input.text),
          .answer_prefix = " Answer: The top 10 words that appear most often in the list are:",
          .outputs = {words.begin(), words.begin() + kCommon},
          .question = input.question};
}

RulerRow make_common_words(const RulerTask&, Draw& draw, int64_t hay) {
  const RulerRow example = make_word_list(draw, 10, 3, 1);
  std::string answer;
  for (size_t i = 0; i < example.outputs.size(); ++i) answer.append(fmt::format(" {}. {}", i + 1, example.outputs[i]));
  return after_example(example, make_word_list(draw, static_cast<size_t>(hay), 30, 3), answer);
}

RulerRow make_frequent_words(const RulerTask&, Draw& draw, int64_t hay) {
  constexpr int kVocabulary = 2000;
  constexpr double kZeta2 = 1.6449340668482264;  // zeta(2.0); alpha = 2.0
  std::vector<std::string> words = {"...."};     // the most frequent word is not asked for
  while (words.size() < kVocabulary) {
    std::string word;
    for (int i = 0; i < 6; ++i) word.push_back(static_cast<char>('a' + draw.below(26)));
    words.push_back(std::move(word));
  }
  std::vector<std::string> text;
  for (size_t k = 0; k < words.size(); ++k) {
    const double rank = static_cast<double>(k + 1);
    const auto count = static_cast<size_t>(static_cast<double>(hay) / (rank * rank) / kZeta2);
    if (count == 0) break;
    text.insert(text.end(), count, words[k]);
  }
  draw.shuffle(text);
  const std::string context = fmt::format("{}", fmt::join(text, " "));
  Rendered input = render(
      "Read the following coded text and track the frequency of each coded word. Find the three most frequently "
      "appeared coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What "
      "are the three most frequently appeared words in the above coded text?",
      {{"context", context}});
  return {.input = std::move(input.text),
          .answer_prefix = " Answer: According to the coded text above, the three most frequently appeared words are:",
          .outputs = {words.begin() + 1, words.begin() + 4},
          .question = input.question};
}

// --- questions over documents ------------------------------------------------------------------------------------

// The official documents are SQuAD's and HotpotQA's; these are the project's own, with one hop and two.
RulerRow make_question(const RulerTask& task, Draw& draw, int64_t hay) {
  const std::vector<Thing> world = make_world(draw, kMaxThings);
  const bool two_hops = std::string_view(task.name) == "qa_2";
  std::vector<std::string> documents;
  for (const Thing& thing : world) {
    std::string text = fmt::format("The {}\n", thing.name);
    for (const Fact& fact : thing.facts) text.append(fact.sentence).append(" ");
    documents.push_back(std::move(text));
  }
  const Thing& asked = world[draw.below(world.size())];
  Fact question = draw.pick(asked.facts);
  if (two_hops) {  // who -> where that person was born
    for (const Thing& thing : world) {
      const std::string town = town_name(draw);
      const std::string& person = thing.facts[0].answer;
      documents.push_back(fmt::format("{0}\n{0} was born in {1}. ", person, town));
      if (&thing != &asked) continue;
      std::string who = thing.facts[0].question.substr(7);  // after "Who is "
      who.pop_back();
      question = {.sentence = {}, .question = fmt::format("Where was {} born?", who), .answer = town};
    }
  }
  for (size_t filler = 0; documents.size() < static_cast<size_t>(hay); ++filler) {
    // Title and first paragraph of an essay.
    const std::string essay = write_essay(draw.below(1u << 20), filler);
    const size_t title_end = essay.find("\n\n");
    documents.push_back(replaced(essay.substr(0, essay.find("\n\n", title_end + 2)), "\n\n", "\n"));
  }
  draw.shuffle(documents);
  std::string context;
  for (size_t i = 0; i < documents.size(); ++i) {
    context.append(fmt::format("{}Document {}:\n{}", i ? "\n\n" : "", i + 1, documents[i]));
  }
  Rendered input = render(
      "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\n"
      "The following are given documents.\n\n{context}\n\nAnswer the question based on the given documents. Only give "
      "me the answer and do not output any other words.\n\nQuestion: {query}",
      {{"context", context}, {"query", question.question}});
  return {.input = std::move(input.text),
          .answer_prefix = " Answer:",
          .outputs = {question.answer},
          .question = input.question};
}

constexpr RulerTask kTasks[] = {
    {"niah_single_1", "one number in noise", 128, true, 1, make_needles, 'n'},
    {"niah_single_2", "one number in essays", 128, true, 1, make_needles, 'e'},
    {"niah_single_3", "one uuid in essays", 128, true, 1, make_needles, 'e', false, true},
    {"niah_multikey_1", "one number among four keys in essays", 128, true, 1, make_needles, 'e', false, false, 4},
    {"niah_multikey_2", "one number among needles only", 128, true, 1, make_needles, 'k'},
    {"niah_multikey_3", "one uuid among uuid needles only", 128, true, 1, make_needles, 'k', true, true},
    {"niah_multivalue", "four numbers of one key", 128, true, 1, make_needles, 'e', false, false, 1, 4},
    {"niah_multiquery", "numbers of four keys", 128, true, 1, make_needles, 'e', false, false, 1, 1, 4},
    {"vt", "variable tracking over four hops", 30, true, 1, make_tracking},
    {"cwe", "the ten common words of a list", 120, true, 1, make_common_words},
    {"fwe", "the three most frequent coded words", 50, true, 10, make_frequent_words},
    {"qa_1", "questions over documents, one hop", 32, false, 1, make_question},
    {"qa_2", "questions over documents, two hops", 32, false, 1, make_question}};

}  // namespace

std::span<const RulerTask> ruler_tasks() { return kTasks; }

}  // namespace kvarena::datasets
