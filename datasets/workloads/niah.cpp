// Needle in a haystack by its first author's protocol (gkamradt/LLMTest_NeedleInAHaystack @7b90d285): a grid of context
// lengths in tokens and depths in percent, one sentence hidden after a full stop, and a question about it. The hay is
// the project's own essays, or a user's folder of *.txt files, joined in order of their names. Scored by the answer
// phrase (metric needle), so that no judge is needed.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "datasets/niah_protocol.h"
#include "datasets/prompt.h"
#include "datasets/texts/essays.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

// Constants of the protocol.
constexpr const char* kNeedle =
    "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.\n";
constexpr const char* kAnswer = "eat a sandwich and sit in Dolores Park on a sunny day";
constexpr const char* kQuestion = "What is the best thing to do in San Francisco?";
constexpr const char* kSystem =
    "You are a helpful AI bot that answers questions for a user. Keep your response short and direct";
constexpr const char* kRestriction = " Don't give information outside the document or repeat your findings";
constexpr const char* kCompletion =
    "<|im_start|> This is a very long story book: <book> {context} </book>.\n"
    " Based on the content of the book, Question: {question}\nAnswer:";
// Needles of the multi-needle tester: three sentences with one answer each.
constexpr std::array<const char*, 3> kMultiNeedles = {
    " Figs are one of the secret ingredients needed to build the perfect pizza. ",
    " Prosciutto is one of the secret ingredients needed to build the perfect pizza. ",
    " Goat cheese is one of the secret ingredients needed to build the perfect pizza. "};
constexpr std::array<const char*, 3> kMultiAnswers = {"Figs", "Prosciutto", "Goat cheese"};
constexpr const char* kMultiQuestion = "What are the secret ingredients needed to build the perfect pizza?";

struct NiahParameters {
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  int64_t min_length = 1000;
  int64_t max_length = 16000;
  int64_t length_count = 35;
  int64_t depth_count = 35;
  std::string depth_interval = "linear";
  int64_t buffer = 200;
  std::string style = "chat";
  std::string period_rule = "after_word";
  std::string haystack;
  std::string needle = kNeedle;
  std::string query = kQuestion;
  std::string answer = kAnswer;
  int64_t seed = 1;

  void declare(ParameterVisitor& p, bool multi) {
    p("lengths", lengths).doc("context lengths in tokens; empty = an even grid of length_count between the two bounds");
    p("depths", depths).doc("depths of the needle in percent; empty = a grid of depth_count from 0 to 100");
    p("min_length", min_length).min(1).doc("shortest context of the even grid, in tokens");
    p("max_length", max_length).min(1).doc("longest context of the even grid, in tokens");
    p("length_count", length_count).min(1).doc("context lengths in the even grid");
    p("depth_count", depth_count).min(1).doc("depths in the grid");
    p("depth_interval", depth_interval).one_of({"linear", "sigmoid"}).doc("spacing of the depth grid");
    p("buffer", buffer).min(0).doc("tokens of the length that stay free for system text, question and answer");
    p("style", style)
        .one_of({"chat", "completion"})
        .doc(
            "chat: system, context and question as three messages, 300 new tokens; completion: the form of KV-cache "
            "papers, no template, 50 new tokens");
    p("period_rule", period_rule)
        .one_of({"after_word", "official"})
        .doc(
            "full-stop tokens before which a needle may start: as at the end of a word, or as encode(\".\") gives "
            "them");
    p("haystack", haystack).doc("folder of *.txt files, joined by name; empty = the project's own essays");
    if (!multi) {
      p("needle", needle).doc("sentence to hide");
      p("query", query).doc("what is asked");
      p("answer", answer).doc("phrase whose occurrence in the response is right");
    }
    p("seed", seed).min(0).doc("seed of the essays");
  }
};

std::string haystack_text(const NiahParameters& parameters, size_t bytes) {
  if (parameters.haystack.empty()) return write_essays(static_cast<uint64_t>(parameters.seed), bytes);
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parameters.haystack, error)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  if (error || files.empty()) {
    fail({.place = parameters.haystack,
          .found = error ? error.message() : "no *.txt file",
          .expected = "a folder with the texts of the haystack"});
  }
  std::sort(files.begin(), files.end());  // the official order is that of the file system
  std::string once;
  for (const auto& file : files) once += read_file(file);
  if (once.empty()) fail({.place = parameters.haystack, .found = "empty files", .expected = "text"});
  std::string text;
  while (text.size() < bytes) text += once;
  return text;
}

std::vector<int32_t> haystack_ids(const NiahParameters& parameters, size_t count, const TokenCounter& tokens) {
  for (size_t bytes = 6 * count + 4096;; bytes *= 2) {  // English has four to five bytes a token
    std::vector<int32_t> ids = tokens.encode(haystack_text(parameters, bytes));
    if (ids.size() >= count) return ids;
  }
}

class NiahSource final : public SampleSource {
 public:
  NiahSource(NiahParameters parameters, bool multi, const TokenCounter& tokens)
      : parameters_(std::move(parameters)), multi_(multi), tokens_(tokens) {
    lengths_ = parameters_.lengths;
    if (lengths_.empty()) {
      lengths_ = niah_linear_grid(static_cast<double>(parameters_.min_length),
                                  static_cast<double>(parameters_.max_length), parameters_.length_count);
    }
    depths_ = parameters_.depths;
    if (depths_.empty() && parameters_.depth_interval == "sigmoid") {
      depths_ = niah_sigmoid_depths(0, 100, parameters_.depth_count);
    } else if (depths_.empty()) {
      for (const int64_t depth : niah_linear_grid(0, 100, parameters_.depth_count)) {
        depths_.push_back(static_cast<double>(depth));
      }
    }
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    hay_ = haystack_ids(parameters_, static_cast<size_t>(longest), tokens_);
    period_ids_ = parameters_.period_rule == "official" ? tokens_.encode(".")
                                                        : std::vector<int32_t>{tokens_.encode("word.").back()};
  }

  bool next(Sample& sample) override {
    const auto cells = static_cast<int64_t>(lengths_.size() * depths_.size());
    if (visited_ == cells) return false;
    const auto cell = static_cast<size_t>(spread_order(visited_++, cells));
    const int64_t length = lengths_[cell / depths_.size()];
    const double depth = depths_[cell % depths_.size()];
    bool walked_to_start = false;
    const std::string context = hide(length, depth, walked_to_start);
    sample.id = fmt::format("length-{}-depth-{}", length, depth);
    const std::string question = multi_ ? kMultiQuestion : parameters_.query;
    if (parameters_.style == "completion") {
      Rendered prompt = render(kCompletion, {{"context", context}, {"question", question}});
      sample.chat_template = false;
      sample.generation.max_new_tokens = 50;
      sample.question = {0, prompt.question};
      sample.messages = {{"user", std::move(prompt.text)}};
    } else {
      sample.question = {2, 0};
      sample.messages = {{"system", kSystem}, {"user", context}, {"user", question + kRestriction}};
    }
    if (multi_) {
      sample.references.assign(kMultiAnswers.begin(), kMultiAnswers.end());
    } else {
      sample.references = {parameters_.answer};
    }
    sample.extras = nlohmann::json{{"context_length", length},
                                   {"depth_percent", depth},
                                   {"question", question},
                                   {"needle", multi_ ? std::string(kMultiNeedles[0]) : parameters_.needle},
                                   {"walked_to_start", walked_to_start}}
                        .dump();
    return true;
  }

 private:
  // Later needles follow (100 - depth) / needles percent further, each into the context with those before it.
  std::string hide(int64_t length, double depth, bool& walked_to_start) const {
    std::vector<int32_t> ids(hay_.begin(), hay_.begin() + std::min<ptrdiff_t>(length, std::ssize(hay_)));
    if (!multi_) {
      NeedlePlacement placed =
          niah_insert(ids, tokens_.encode(parameters_.needle), period_ids_, length, parameters_.buffer, depth);
      walked_to_start = placed.walked_to_start;
      return tokens_.decode(placed.ids);
    }
    size_t needle_tokens = 0;
    for (const char* needle : kMultiNeedles) needle_tokens += tokens_.encode(needle).size();
    const int64_t room = std::max<int64_t>(length - parameters_.buffer - static_cast<int64_t>(needle_tokens), 0);
    ids.resize(std::min(ids.size(), static_cast<size_t>(room)));
    const double step = (100 - depth) / static_cast<double>(kMultiNeedles.size());
    for (size_t i = 0; i < kMultiNeedles.size(); ++i) {
      NeedlePlacement placed = niah_insert(ids, tokens_.encode(kMultiNeedles[i]), period_ids_, length,
                                           parameters_.buffer, depth + step * static_cast<double>(i));
      walked_to_start |= placed.walked_to_start;
      ids = std::move(placed.ids);
    }
    return tokens_.decode(ids);
  }

  NiahParameters parameters_;
  bool multi_;
  const TokenCounter& tokens_;
  std::vector<int64_t> lengths_;
  std::vector<double> depths_;
  std::vector<int32_t> hay_;
  std::vector<int32_t> period_ids_;
  int64_t visited_ = 0;
};

template <bool multi>
class NiahWorkload final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override { parameters_.declare(p, multi); }
  std::vector<std::string> problems() const override {
    std::vector<std::string> found;
    const auto bad_length = [](int64_t length) { return length < 1; };
    const auto bad_depth = [](double depth) { return !(depth >= 0 && depth <= 100); };
    if (std::any_of(parameters_.lengths.begin(), parameters_.lengths.end(), bad_length)) {
      found.emplace_back("lengths: expected token counts of at least 1");
    }
    if (std::any_of(parameters_.depths.begin(), parameters_.depths.end(), bad_depth)) {
      found.emplace_back("depths: expected percentages from 0 to 100");
    }
    if (parameters_.max_length < parameters_.min_length) found.emplace_back("max_length is below min_length");
    return found;
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (!settings.tokens) {
      fail({.place = info().name, .found = "no tokenizer", .expected = "one: context lengths are counted in tokens"});
    }
    return std::make_unique<NiahSource>(parameters_, multi, *settings.tokens);
  }

 private:
  NiahParameters parameters_;
};

using Niah = NiahWorkload<false>;
using NiahMulti = NiahWorkload<true>;

KVARENA_WORKLOAD(Niah, {.name = "niah",
                        .family = "needle",
                        .title = "Needle in a haystack, Kamradt protocol: grid of lengths and depths",
                        .source = "generated; protocol of gkamradt/LLMTest_NeedleInAHaystack",
                        .licence = "MIT (protocol); texts made by the project",
                        .metrics = {"needle"},
                        .samples = 35 * 35,
                        .generation = {.max_new_tokens = 300}});
KVARENA_WORKLOAD(NiahMulti, {.name = "niah_multi",
                             .family = "needle",
                             .title = "Three needles in a haystack, Kamradt's multi-needle protocol",
                             .source = "generated; protocol of gkamradt/LLMTest_NeedleInAHaystack",
                             .licence = "MIT (protocol); texts made by the project",
                             .metrics = {"string_match_all"},
                             .samples = 35 * 35,
                             .generation = {.max_new_tokens = 300}});

}  // namespace
}  // namespace kvarena::datasets
