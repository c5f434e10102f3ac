// Prompts of the user's own: rows of a JSON Lines file, {"prompt": ..., "references": [...]} at the least.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/records.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWithoutReferences = "kl";  // the metric of rows that have no answer

void check_fields(const Row& row, const std::string& place) {
  static const std::vector<std::string> known = {"id",         "prompt",        "messages", "context",
                                                 "references", "answer_prefix", "extras"};
  for (const auto& [field, value] : row.items()) {
    if (std::ranges::find(known, field) != known.end()) continue;
    fail({.place = place,
          .found = fmt::format("the field \"{}\"", field),
          .expected = fmt::format("some of {}", fmt::join(known, ", ")),
          .nearest = nearest_name(field, known)});
  }
  if (row.contains("prompt") == row.contains("messages")) {
    fail({.place = place,
          .found = row.contains("prompt") ? "both \"prompt\" and \"messages\"" : "neither \"prompt\" nor \"messages\"",
          .expected = "one of them"});
  }
}

std::vector<Message> messages_of(const Row& row, const std::string& place) {
  if (row.contains("prompt")) return {{"user", string_field(row, "prompt", place)}};
  return read_messages(any_field(row, "messages", place), place + ": messages");
}

/// The question is the last message, behind its context where the row has one.
void place_question(const std::string& context, Sample& sample) {
  sample.question = {sample.messages.size() - 1, context.size()};
  if (context.empty()) return;
  Message& last = sample.messages.back();
  std::string before;  // the question
  for (const Message& message : sample.messages) {
    before += fmt::format("{}\n{}\n", message.role, &message == &last ? context : message.content);
  }
  sample.context = sha256(before);
  last.content.insert(0, context);
}

class Prompts final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("file", file_).doc("JSON Lines file, or a JSON array, of rows with prompt or messages, and references");
    p("metric", metric_).doc("metric that scores answers, of `kvarena metrics`; kl where rows have no references");
    p("chat", chat_).doc("put the model's chat template around the messages; otherwise the prompt is plain text");
    p("max_new_tokens", max_new_tokens_).min(1).doc("longest answer");
    p("stop", stop_).doc("text that ends an answer, which ends before it; empty = none");
  }

 protected:
  void describe(WorkloadInfo& info) const override {
    info.metrics = {metric_};
    info.chat_template = chat_;
    info.generation.max_new_tokens = max_new_tokens_;
    if (!stop_.empty()) info.generation.stop = {stop_};
    if (file_.empty()) return;
    const fs::path file = fs::absolute(file_);
    info.folder = file.parent_path().string();
    info.files = {file.filename().string()};
    info.source = file.string();
  }

  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (file_.empty() || !fs::exists(file_)) {
      fail({.place = info().name + ".file",
            .found = file_.empty() ? "nothing" : "no file " + fs::absolute(file_).string(),
            .expected = "a JSON Lines file with a prompt and its references in each row"});
    }
    return make_row_source(require_data_file(info(), settings.data_dir),
                           [own = *this](const Row& row, const std::string& place, Sample& sample) {
                             own.fill(row, place, sample);
                             return true;
                           });
  }

 private:
  void fill(const Row& row, const std::string& place, Sample& sample) const {
    check_fields(row, place);
    if (row.contains("id")) sample.id = string_field(row, "id", place);
    sample.messages = messages_of(row, place);
    if (!chat_ && sample.messages.size() > 1) {
      fail({.place = place, .found = "several messages", .expected = "one, as \"chat\" is false"});
    }
    place_question(row.contains("context") ? string_field(row, "context", place) : "", sample);
    if (row.contains("references") || metric_ != kWithoutReferences) {
      sample.references = strings_field(row, "references", place);
    }
    if (row.contains("answer_prefix")) sample.answer_prefix = string_field(row, "answer_prefix", place);
    if (row.contains("extras")) sample.extras = any_field(row, "extras", place).dump();
  }

  std::string file_;
  std::string metric_ = "qa_f1";
  bool chat_ = true;
  int64_t max_new_tokens_ = 64;
  std::string stop_;
};

KVARENA_WORKLOAD(Prompts, {.name = "prompts",
                           .family = "own",
                           .title = "Own prompts: rows of a JSON Lines file",
                           .source = "a file of yours",
                           .licence = "yours",
                           .metrics = {"qa_f1"},
                           .generation = {.max_new_tokens = 64}});

}  // namespace
}  // namespace kvarena::datasets
