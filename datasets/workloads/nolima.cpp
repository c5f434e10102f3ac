// NoLiMa (adobe-research/NoLiMa @7532e4e): a sentence in a book and a question that shares no words with it, so that
// finding it takes knowledge of the world. Needles, books and the prompt are the authors' files, whose licence allows
// research alone: none of them is part of this project. Project-made ones in the same form stand in.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "datasets/data_files.h"
#include "datasets/niah_protocol.h"
#include "datasets/prompt.h"
#include "datasets/python_text.h"
#include "datasets/records.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

constexpr int64_t kBooks = 5;
constexpr uint32_t kBaseSeed = 42;
constexpr const char* kSystem = "You are a helpful assistant";  // of its runs by an OpenAI-compatible server

struct Settings {
  int64_t context_length = 2000;
  int64_t depths = 26;
  int64_t books = kBooks;
  std::string needles = "needle_set";
};

/// Bytes as tokens: what lengths are counted in without a tokenizer, four to a token.
class ByteTokens final : public TokenCounter {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    return {reinterpret_cast<const unsigned char*>(text.data()),
            reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += static_cast<char>(id);
    return text;
  }
};

/// One needle with its words, and one question about it.
struct Test {
  std::string name;
  std::string needle;
  std::string question;
  std::string prompt;
  std::vector<std::string> characters;  // who {CHAR} may be
  std::vector<std::string> answers;     // where the needle names no character
  uint32_t seed = 0;
};

/// A book as tokens, and the places behind which a needle may stand: those of line ends, and the start.
struct Book {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<int64_t> line_ends = {0};
};

/// The value of DEFAULT_TASK_TEMPLATE in the authors' run_tests.py, for needle sets that bring no prompt of their own.
std::string default_prompt(const std::filesystem::path& file) {
  const std::string code = std::filesystem::exists(file) ? read_file(file) : "";
  const std::string name = "DEFAULT_TASK_TEMPLATE = ";
  const size_t begin = code.find(name);
  const std::string line =
      begin == std::string::npos ? "" : code.substr(begin + name.size(), code.find('\n', begin) - begin - name.size());
  const Row text = Row::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!text.is_string()) {
    fail({.place = file.string(),
          .found = "no DEFAULT_TASK_TEMPLATE",
          .expected = "the prompt, as needles without task_template need it",
          .action = "`kvarena workloads pull nolima`"});
  }
  return text.get<std::string>();
}

/// The number that the first four characters of a needle's id are.
uint32_t number_of(const std::string& id, const std::string& place) {
  uint32_t number = 0;
  const char* const end = id.data() + std::min<size_t>(id.size(), 4);
  if (std::from_chars(id.data(), end, number).ptr == end && end != id.data()) return number;
  fail({.place = place + ": id", .found = fmt::format("\"{}\"", id), .expected = "four digits at its start"});
}

/// The tests of one needle: each of its questions with each of its sets of words.
void append_tests(const Row& row, const std::string& place, const std::filesystem::path& folder,
                  std::vector<Test>& tests) {
  const std::string id = string_field(row, "id", place);
  const std::string prompt = row.contains("task_template") ? string_field(row, "task_template", place)
                                                           : default_prompt(folder / "run_tests.py");
  for (const auto& [kind, question] : any_field(row, "questions", place).items()) {
    for (const auto& [name, test] : any_field(row, "tests", place).items()) {
      Test made{.name = fmt::format("{}_{}_{}", id, name, kind),
                .needle = string_field(row, "needle", place),
                .question = question.get<std::string>(),
                .prompt = prompt,
                .seed = kBaseSeed + number_of(id, place)};
      const std::vector<std::string> words = strings_field(test, "input_args", place);
      const std::string asked = made.question;
      for (size_t i = 0; i < words.size(); ++i) {
        const std::string slot = fmt::format("{{{}}}", i + 1);
        // The last word of several that the question has a place for: the authors fill each into the bare question.
        if (asked.find(slot) != std::string::npos) made.question = replace_all(asked, slot, words[i]);
        made.needle = replace_all(made.needle, slot, words[i]);
      }
      if (row.contains("character_set")) made.characters = strings_field(row, "character_set", place);
      if (test.contains("gold_answers")) made.answers = strings_field(test, "gold_answers", place);
      tests.push_back(std::move(made));
    }
  }
}

Book read_book(const std::filesystem::path& file, const TokenCounter& tokens) {
  Book book{.name = file.stem().string(), .ids = tokens.encode(read_file(file))};
  for (size_t i = 0; i < book.ids.size(); ++i) {
    if (tokens.decode(std::span(book.ids).subspan(i, 1)).find('\n') != std::string::npos) {
      book.line_ends.push_back(static_cast<int64_t>(i));
    }
  }
  return book;
}

/// `length` tokens of a book with the needle on a line of its own at `depth` of them (BookHaystack of the authors).
std::string hay(const Book& book, const TokenCounter& tokens, const std::string& needle, int64_t length, double depth) {
  const auto behind = std::ranges::find_if(book.line_ends, [&](int64_t at) {
    return static_cast<double>(at) / static_cast<double>(length + 1) - depth >= 0;
  });
  const int64_t before = static_cast<int64_t>(std::nearbyint(static_cast<double>(length) * depth));
  const int64_t place = behind == book.line_ends.end() ? -1 : *behind;
  if (place < before || place - before + length > std::ssize(book.ids)) {
    fail({.place = book.name,
          .found = fmt::format("{} tokens", book.ids.size()),
          .expected = fmt::format("enough for {} of them around a line end", length),
          .action = "lower context_length"});
  }
  const std::span<const int32_t> ids(book.ids);
  const auto part = [&](int64_t from, int64_t to) {
    return tokens.decode(ids.subspan(static_cast<size_t>(from), static_cast<size_t>(std::max<int64_t>(to - from, 0))));
  };
  std::string head = part(place - before, place + 1);
  head.resize(head.rfind('\n') == std::string::npos ? 0 : head.rfind('\n'));
  return head + " " + needle + "\n" + part(place + 1, place - before + length);
}

/// numpy.random.choice of n: 32 bits of the Mersenne twister, masked until they are below n.
size_t numpy_choice(std::mt19937& bits, size_t n) {
  if (n <= 1) return 0;
  const uint32_t mask = std::bit_ceil(static_cast<uint32_t>(n)) - 1;
  while (true) {
    const auto drawn = static_cast<size_t>(bits() & mask);
    if (drawn < n) return drawn;
  }
}

class NoLiMaSource final : public SampleSource {
 public:
  NoLiMaSource(const Settings& settings, const DataFile& file, const TokenCounter* tokens)
      : settings_(settings), file_(file), tokens_(tokens != nullptr ? tokens : &bytes_) {
    RecordReader rows(file.path);
    while (const std::optional<Record> record = rows.next()) {
      append_tests(parse_object(*record), record->place, file.path.parent_path(), tests_);
    }
    if (tokens == nullptr) settings_.context_length *= 4;
  }

  bool next(Sample& sample) override {
    const int64_t count = settings_.books * std::ssize(tests_) * settings_.depths;
    if (made_ == count) return false;
    const int64_t cell = spread_order(made_++, count);
    const int64_t depth = cell % settings_.depths;
    const Test& test = tests_[static_cast<size_t>(cell / settings_.depths % std::ssize(tests_))];
    const int64_t number = cell / settings_.depths / std::ssize(tests_);
    const std::string name = test.characters.empty() ? "" : character(test, number, depth);
    const double depth_percent = niah_linspace(0, 100, settings_.depths, depth);
    const std::string haystack = hay(book(number), *tokens_, replace_all(test.needle, "{CHAR}", name),
                                     settings_.context_length, depth_percent / 100);
    Rendered prompt = render(
        test.prompt, {{"haystack", haystack}, {"question", replace_all(test.question, "{CHAR}", name)}}, "haystack");
    sample.id = fmt::format("{}-book-{}-depth-{}", test.name, number + 1, depth);
    sample.messages = {{"system", kSystem}, {"user", std::move(prompt.text)}};
    sample.question = {1, prompt.question};
    sample.references = name.empty() ? test.answers : std::vector<std::string>{name};
    sample.extras = nlohmann::json{{"depth_percent", depth_percent}}.dump();
    sample.origin = file_.origin;
    return true;
  }

 private:
  /// Draws whom the needle of the `depth`-th prompt of a test is about, as the authors do, one for each depth in turn.
  [[nodiscard]] std::string character(const Test& test, int64_t book, int64_t depth) const {
    std::mt19937 bits(test.seed + static_cast<uint32_t>(book));
    size_t drawn = 0;
    for (int64_t i = 0; i <= depth; ++i) drawn = numpy_choice(bits, test.characters.size());
    return test.characters[drawn];
  }

  const Book& book(int64_t number) {
    const auto found = books_.find(number);
    if (found != books_.end()) return found->second;
    WorkloadInfo books;
    books.name = "nolima";
    books.download = "kvarena workloads pull nolima";
    books.folder = "nolima";
    books.files = {fmt::format("rand_book_{}.txt", number + 1)};
    return books_[number] = read_book(require_data_file(books, file_.root).path, *tokens_);
  }

  Settings settings_;
  DataFile file_;
  ByteTokens bytes_;
  const TokenCounter* tokens_;
  std::vector<Test> tests_;
  std::map<int64_t, Book> books_;  // by number from 0
  int64_t made_ = 0;
};

class NoLiMa final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("context_length", settings_.context_length).min(50).doc("tokens of the book in a prompt");
    p("depths", settings_.depths).min(1).max(1000).doc("places of each needle, evenly from start to end");
    p("books", settings_.books).min(1).max(kBooks).doc("how many of the five books each needle is put into");
    p("needles", settings_.needles)
        .one_of({"needle_set", "needle_set_hard", "needle_set_ONLYDirect"})
        .doc("the authors' file of needles: all, the ten hardest, or those with direct questions");
  }

 protected:
  void describe(WorkloadInfo& info) const override { info.files = {settings_.needles + ".json"}; }
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return std::make_unique<NoLiMaSource>(settings_, require_data_file(info(), settings.data_dir), settings.tokens);
  }

 private:
  Settings settings_;
};

KVARENA_WORKLOAD(
    NoLiMa,
    {.name = "nolima",
     .family = "nolima",
     .title = "NoLiMa: a sentence in a book that shares no words with the question",
     .source = "https://github.com/adobe-research/NoLiMa @7532e4e, https://huggingface.co/datasets/amodaresi/NoLiMa",
     .download =
         "for f in needlesets/needle_set needlesets/needle_set_hard needlesets/needle_set_ONLYDirect; do curl -L "
         "--create-dirs -o $KVARENA_DATA/nolima/$(basename $f).json "
         "https://huggingface.co/datasets/amodaresi/NoLiMa/resolve/main/$f.json; done; for n in 1 2 3 4 5; do curl -L "
         "-o "
         "$KVARENA_DATA/nolima/rand_book_$n.txt "
         "https://huggingface.co/datasets/amodaresi/NoLiMa/resolve/main/haystack/rand_shuffle/rand_book_$n.txt; done; "
         "curl -L -o $KVARENA_DATA/nolima/run_tests.py https://raw.githubusercontent.com/adobe-research/NoLiMa/"
         "7532e4eebf095c5540dc256900a63968da58a9d0/evaluation/run_tests.py",
     .licence = "Adobe Research License (noncommercial research); books as the data set states",
     .metrics = {"contains"},
     .folder = "nolima",
     .files = {"needle_set.json"},
     .samples = 58 * 26 * kBooks,
     .generation = {.max_new_tokens = 192}});

}  // namespace
}  // namespace kvarena::datasets
