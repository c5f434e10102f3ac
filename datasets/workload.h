#pragma once
// The plugin API of workloads: one file in datasets/workloads/ and a registration line make a workload.
//
//   class Needle final : public Workload {
//     void parameters(ParameterVisitor& p) override { p("seed", seed_).min(0).doc("..."); }
//     std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override;
//     int64_t seed_ = 1;
//   };
//   KVARENA_WORKLOAD(Needle, {.name = "needle", .family = "needle", ...});
//
// A user of workloads writes:
//
//   auto workload = make_workload("longbench/qasper", R"({})", "configs/a.json: workloads[0]");
//   auto reader = workload->open({.data_dir = "/data", .tokens = &counter, .max_prompt_tokens = 7500});
//   while (auto sample = reader.next()) ...
//
// Nothing here knows a model, a cache method or a metric: tokenizers come in as a TokenCounter, metrics are ids.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/token_counter.h"
#include "harness/core/parameters.h"

namespace kvarena::datasets {

/// One turn of a conversation. Roles: "system", "user", "assistant", "tool".
struct Message {
  std::string role;
  std::string content;  // UTF-8
};

/// Defaults of the answer's generation, which an experiment may override.
struct Generation {
  int64_t max_new_tokens = 32;
  int64_t min_new_tokens = 0;
  /// Generation ends when the text so far contains one of these; the prediction ends before it. End-of-sequence tokens
  /// always end it.
  std::vector<std::string> stop;
  /// Generation ends at the last token of encode(stop_token_of); empty = no such token. (samsum: "\n")
  std::string stop_token_of;
  double temperature = 0;  // 0 = greedy
  double top_p = 1;
};

/// Ways to shorten a prompt above the limit (sections 1.5, 2.4 and 4 of the workload sheet).
enum class TruncationRule {
  none,           // prompts are never cut; one that does not fit the window is the engine's error
  middle_halves,  // LongBench: first and last max/2 ids, two separate decodes joined as strings
  middle_joined,  // LongBench v2: first max/2 and last max/2 ids (the tail one longer for odd max), one decode
  context_end,    // HELMET, ZeroSCROLLS: the last ids before the question, or of a prompt that is all question, go
};

/// Effect of truncation on one sample.
struct TruncationRecord {
  int64_t tokens_before = 0;   // tokens of the rendered prompt, special ones included; 0 = not counted
  int64_t tokens_removed = 0;  // 0 = prompt unchanged
};

/// Start of the question: everything before is context that a query-agnostic method compresses without having seen the
/// question. A byte of 0 in message 0 means that the whole prompt is question.
struct PromptPosition {
  size_t message = 0;
  size_t byte = 0;  // offset in messages[message].content, at a code point boundary

  bool operator==(const PromptPosition&) const = default;
};

/// A tool's result in a message.
struct ToolResult {
  size_t message = 0;
  size_t begin = 0;  // bytes begin .. end-1 of its content
  size_t end = 0;
  std::string tool;  // name; empty: not known
};

/// A sample's place in a session that was recorded, for loads that replay it (serving.arrivals "sessions").
struct RecordedTurn {
  std::string session;
  double think_s = 0;          // from the answer before it in its session
  std::optional<double> at_s;  // when it came, in the record's time; absent: not recorded
};

/// Message behind the answers that a live sample has had so far, and the record of them.
struct LiveReply {
  std::string message;  // text that the next answer follows; empty, unless `anew` is not: the conversation is over
  std::string record;   // JSON of what came of the answers, which is scored in their place once it is over
  /// A chat's messages that the next answer follows in a context of their own, where nothing that was said before is
  /// seen; the last one is the question. Empty: the conversation goes on in its context.
  std::vector<Message> anew;
  std::vector<ToolResult> results;  // in the message

  [[nodiscard]] bool over() const { return message.empty() && anew.empty(); }
};

/// A conversation whose next message follows from the answers, as results of tools do.
struct Live {
  /// Returns what follows the answers so far, at least one; equal answers have equal replies. Null: one answer ends
  /// the sample.
  std::function<LiveReply(std::span<const std::string> answers)> reply;
  int64_t most_tokens = 0;  // that may follow the first answer, or be in a later context beside as many tokens as the
                            // first prompt has: room that the window has to have
};

/// One prompt with everything needed to generate, score and cite the answer.
struct Sample {
  std::string id;  // unique in its workload
  /// A plain prompt is a single user message and chat_template == false: its content is the whole prompt. Otherwise
  /// the model's chat template is put around the messages.
  std::vector<Message> messages;
  bool chat_template = true;
  std::string answer_prefix;  // starts the assistant's turn (after the template) and is not part of the prediction
  PromptPosition question;
  std::string cut_mark;  // stands in place of what TruncationRule::context_end removes
  /// Name of the context that this sample and its neighbours ask about; empty when it is this sample's alone.
  std::string context;
  /// Text that is asked where earlier questions about the context precede it; empty: all that follows the context.
  std::string follow_up;
  /// Places behind `question` where earlier turns' answers begin and end, of a turn of a conversation (conversation.h).
  std::vector<PromptPosition> turns;
  Live live;
  /// Results of tools in messages, in their order; messages of role "tool" are such without being named.
  std::vector<ToolResult> results;
  std::optional<RecordedTurn> recorded;
  std::vector<std::string> references;  // accepted answers; form per metric is in datasets/README.md
  std::string extras = "{}";            // JSON object: what metrics and reports need beside references
  Generation generation;
  TruncationRecord truncation;
  std::string origin;         // "generated", "project-made sample", or the file's name
  std::string data_sha256;    // hash of the row in the file; of the whole sample when generated
  std::string prompt_sha256;  // see prompt_sha256(); after truncation, before the chat template

  /// Whether it says where its question starts: whether anything is before it.
  [[nodiscard]] bool has_context() const { return question.message > 0 || question.byte > 0; }
};

/// SHA-256 of the text of a plain prompt, or of the messages and answer prefix as compact JSON.
[[nodiscard]] std::string prompt_sha256(const Sample& sample);

/// Description of a workload; shown by `kvarena workloads`, stored with every run.
struct WorkloadInfo {
  std::string name;                  // "longbench/qasper"
  std::string family;                // "longbench"
  std::string title;                 // one line for people
  std::string source;                // repository or data set of the official files; "generated", or "a file of yours"
  std::string download;              // one command that fetches the files into $KVARENA_DATA; empty when generated
  std::string licence;               // licence of the data
  std::vector<std::string> metrics;  // ids of metrics; the first is the one that tables show
  std::string folder;                // sub-folder of the data folder; empty when generated
  std::vector<std::string> files;    // file names looked for below `folder`, any of them serves
  int64_t samples = 0;               // in the official set, or with default parameters
  bool chat_template = true;
  Generation generation;
  TruncationRule truncation = TruncationRule::none;
};

/// Settings that change between runs of a workload.
struct OpenSettings {
  /// Folder with official files. Empty: $KVARENA_DATA; when that is not set either, the small project-made files
  /// that come with the source.
  std::filesystem::path data_dir;
  /// Required by workloads that count tokens and by truncation; a UserError says so when it is missing.
  const TokenCounter* tokens = nullptr;
  /// Limit for truncation in tokens of the rendered prompt; 0 = never truncate.
  int64_t max_prompt_tokens = 0;
  /// Samples of one context are turns of a conversation (conversation.h).
  bool turns = false;
};

/// Most samples that a generator makes, since all are made once before a run to list them.
constexpr int64_t kMostGenerated = 100'000;

class Conversation;

/// Makes samples one after another. Owned by a SampleReader.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// Fills the next sample, which arrives with the workload's defaults for chat_template and generation. Returns
  /// false at the end. Throws UserError naming file and line for a bad row.
  virtual bool next(Sample& sample) = 0;
};

/// Streams the finished samples of an open workload: truncated where asked, hashed, checked.
class SampleReader {
 public:
  SampleReader(WorkloadInfo info, OpenSettings settings, std::unique_ptr<SampleSource> source);
  /// The next sample, or nothing at the end. Errors are UserErrors as described at SampleSource::next.
  [[nodiscard]] std::optional<Sample> next();

 private:
  WorkloadInfo info_;
  OpenSettings settings_;
  std::unique_ptr<SampleSource> source_;
  std::shared_ptr<Conversation> conversation_;  // null unless samples are turns
};

/// A workload with its parameters. Made by make_workload; immutable once its parameters are read.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Declares the parameters; members hold the defaults.
  virtual void parameters(ParameterVisitor&) {}
  /// Problems that only show when several parameters are seen together; each a sentence without a place.
  [[nodiscard]] virtual std::vector<std::string> problems() const { return {}; }

  [[nodiscard]] const WorkloadInfo& info() const { return info_; }
  /// Opens for reading from the first sample. The same settings give the same samples, always. `settings.tokens`
  /// must outlive the reader. Throws UserError when files are missing.
  [[nodiscard]] SampleReader open(const OpenSettings& settings) const;

 protected:
  [[nodiscard]] virtual std::unique_ptr<SampleSource> source(const OpenSettings& settings) const = 0;
  /// Adapts the registered description to the parameters.
  virtual void describe(WorkloadInfo& /*info*/) const {}

 private:
  friend std::unique_ptr<Workload> make_workload(const std::string&, const std::string&, const std::string&);
  WorkloadInfo info_;
};

/// A registered workload.
struct WorkloadEntry {
  WorkloadInfo info;
  std::function<std::unique_ptr<Workload>()> make;
  std::string file;  // source file that registered it
};

/// All registered workloads, sorted by name.
[[nodiscard]] const std::vector<WorkloadEntry>& workloads();
/// Throws UserError with the nearest name when there is none; `place` says where the name was written.
[[nodiscard]] const WorkloadEntry& find_workload(const std::string& name, const std::string& place);
/// A workload with parameters from a JSON object (the key "name" is ignored). Throws UserError listing every problem.
[[nodiscard]] std::unique_ptr<Workload> make_workload(const std::string& name, const std::string& parameters_json,
                                                      const std::string& place);
/// Descriptions of a workload's parameters with their defaults.
[[nodiscard]] std::vector<ParameterInfo> workload_parameters(const WorkloadEntry& entry);

/// Adds one entry at program start. Two entries of one name are an InternalError when workloads() is first called.
struct WorkloadRegistration {
  WorkloadRegistration(WorkloadInfo info, std::function<std::unique_ptr<Workload>()> make,
                       std::source_location where = std::source_location::current());
};

#define KVARENA_WORKLOAD(Class, ...)                                                        \
  const ::kvarena::datasets::WorkloadRegistration registered_##Class {                      \
    ::kvarena::datasets::WorkloadInfo __VA_ARGS__, [] { return std::make_unique<Class>(); } \
  }

}  // namespace kvarena::datasets
