// LongMemEval (xiaowu0162/LongMemEval @9e0b455): what a user and an assistant said in dated sessions, and a question
// that needs a memory of them, in the prompts of src/generation/run_generation.py with the whole history.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "datasets/python_text.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

constexpr const char* kStart =
    "I will give you several history chats between you and a user. Please answer the question based on the relevant "
    "chat history.{}\n\n\nHistory Chats:\n\n";
constexpr const char* kInSteps =
    " Answer the question step by step: first extract all the relevant information, and then reason over the "
    "information to get the answer.";
constexpr const char* kAbstention = "abstention";

/// Parameters of the workload.
struct Settings {
  std::string type = "all";
  std::string history = "json";
  std::string reading = "con";
  int64_t sessions = 0;
};

/// A session's turns without the mark of evidence.
std::string session_text(Row turns, const Settings& settings, const std::string& place) {
  std::string text;
  for (Row& turn : turns) {
    turn.erase("has_answer");
    const std::string content = string_field(turn, "content", place);
    text += fmt::format("\n\n{}: {}", string_field(turn, "role", place), python_strip(content));
  }
  return settings.history == "nl" ? text : fmt::format("\n{}", python_json(turns));
}

/// The latest sessions of the file's order, by their dates.
std::string history(const Row& row, const Settings& settings, const std::string& place) {
  const std::vector<std::string> dates = strings_field(row, "haystack_dates", place);
  const Row& sessions = any_field(row, "haystack_sessions", place);
  if (!sessions.is_array() || sessions.size() != dates.size()) {
    fail({.place = place + ": haystack_sessions",
          .found = fmt::format("{} sessions", sessions.size()),
          .expected = fmt::format("a list of {}, as many as haystack_dates", dates.size())});
  }
  const size_t told = settings.sessions == 0 ? dates.size() : std::min<size_t>(settings.sessions, dates.size());
  std::vector<size_t> order(told);
  std::iota(order.begin(), order.end(), dates.size() - told);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return dates[i]; });
  std::string text;
  for (size_t i = 0; i < order.size(); ++i) {
    text += fmt::format("\n### Session {}:\nSession Date: {}\nSession Content:\n{}\n", i + 1, dates[order[i]],
                        session_text(sessions[order[i]], settings, place));
  }
  return text;
}

bool fill(const Settings& settings, const Row& row, const std::string& place, Sample& sample) {
  sample.id = string_field(row, "question_id", place);
  const std::string type = string_field(row, "question_type", place);
  const bool abstention = sample.id.find("_abs") != std::string::npos;
  if (settings.type == kAbstention ? !abstention : settings.type != "all" && settings.type != type) return false;
  const bool in_steps = settings.reading == "con";
  const std::string question = string_field(row, "question", place),
                    answer = python_text(any_field(row, "answer", place));
  const std::string context = fmt::format(kStart, in_steps ? kInSteps : "") + history(row, settings, place);
  sample.messages = {
      {"user", fmt::format("{}\n\nCurrent Date: {}\nQuestion: {}\nAnswer{}:", context,
                           string_field(row, "question_date", place), question, in_steps ? " (step by step)" : "")}};
  sample.question = {0, context.size()};
  sample.references = {answer};
  sample.extras =
      nlohmann::json{{"question_id", sample.id}, {"question_type", type}, {"question", question}, {"answer", answer}}
          .dump();
  return true;
}

class LongMemEval final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("question_type", settings_.type)
        .one_of({"all", "single-session-user", "single-session-assistant", "single-session-preference", "multi-session",
                 "temporal-reasoning", "knowledge-update", kAbstention})
        .doc("rows of one type; abstention: those of any type whose answer nobody told");
    p("history", settings_.history).one_of({"json", "nl"}).doc("sessions as JSON or as lines of a dialogue");
    p("reading", settings_.reading)
        .one_of({"con", "direct"})
        .doc(
            "chain of note, to extract what is relevant and then to reason in up to 800 tokens; or the answer at once");
    p("sessions", settings_.sessions).min(0).doc("latest sessions that are told; 0: all");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    info.generation.max_new_tokens = settings_.reading == "con" ? 800 : 500;
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), std::bind_front(fill, settings_));
  }

 private:
  Settings settings_;
};

struct Set {
  const char* name;
  const char* title;
  const char* file;
  const char* older;
};

[[maybe_unused]] const bool registered = [] {
  const Set sets[] = {{"s", "about 40 sessions, 115k tokens", "longmemeval_s_cleaned.json", "longmemeval_s.json"},
                      {"m", "about 500 sessions, 1.5M tokens", "longmemeval_m_cleaned.json", "longmemeval_m.json"},
                      {"oracle", "the sessions that hold the answer", "longmemeval_oracle.json", nullptr}};
  for (const Set& set : sets) {
    std::vector<std::string> files = {set.file};
    if (set.older != nullptr) files.emplace_back(set.older);
    WorkloadRegistration(
        {.name = fmt::format("longmemeval/{}", set.name),
         .family = "longmemeval",
         .title = fmt::format("LongMemEval {}: questions about sessions with an assistant; {}", set.name, set.title),
         .source = "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned",
         .download = fmt::format("curl -L --create-dirs -o $KVARENA_DATA/longmemeval/{0} "
                                 "https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned/resolve/main/{0}",
                                 set.file),
         .licence = "MIT",
         .metrics = {"longmemeval_match", "judged_longmemeval"},
         .folder = "longmemeval",
         .files = std::move(files),
         .samples = 500,
         .generation = {.max_new_tokens = 800}},
        [] { return std::make_unique<LongMemEval>(); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
