#include "datasets/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "datasets/conversation.h"
#include "datasets/truncation.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

// Function-local so that registrations in other files may run before this file's own initialisers.
std::vector<WorkloadEntry>& pending() {
  static std::vector<WorkloadEntry> entries;
  return entries;
}

json messages_json(const Sample& sample) {
  json messages = json::array();
  for (const Message& message : sample.messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  return messages;
}

// Truncation may leave half a code point at the seam; it is hashed as U+FFFD.

std::string content_sha256(const Sample& sample) {
  json content = {{"messages", messages_json(sample)},
                  {"answer_prefix", sample.answer_prefix},
                  {"references", sample.references},
                  {"extras", json::parse(sample.extras)}};
  return sha256(json_text(content));
}

void check(const Sample& sample) {
  KVARENA_ASSERT(!sample.id.empty() && !sample.messages.empty(), sample.id);
  KVARENA_ASSERT(sample.chat_template || sample.messages.size() == 1,
                 fmt::format("{}: a plain prompt with {} messages", sample.id, sample.messages.size()));
  KVARENA_ASSERT(
      sample.question.message < sample.messages.size() &&
          sample.question.byte <= sample.messages[sample.question.message].content.size(),
      fmt::format("{}: question at message {} byte {}", sample.id, sample.question.message, sample.question.byte));
}

}  // namespace

std::string prompt_sha256(const Sample& sample) {
  if (!sample.chat_template) return sha256(sample.messages.at(0).content + sample.answer_prefix);
  json rendered = messages_json(sample);
  if (!sample.answer_prefix.empty()) rendered.push_back({{"answer_prefix", sample.answer_prefix}});
  return sha256(json_text(rendered));
}

SampleReader::SampleReader(WorkloadInfo info, OpenSettings settings, std::unique_ptr<SampleSource> source)
    : info_(std::move(info)),
      settings_(std::move(settings)),
      source_(std::move(source)),
      conversation_(settings_.turns ? std::make_shared<Conversation>() : nullptr) {}

std::optional<Sample> SampleReader::next() {
  Sample sample;
  sample.chat_template = info_.chat_template;
  sample.generation = info_.generation;
  sample.origin = "generated";
  if (!source_->next(sample)) return std::nullopt;
  check(sample);
  if (sample.data_sha256.empty()) sample.data_sha256 = content_sha256(sample);
  if (conversation_) conversation_->join(sample);
  if (settings_.max_prompt_tokens > 0) {
    if (!settings_.tokens) {
      fail({.place = info_.name, .found = "a prompt limit without a tokenizer", .expected = "both or neither"});
    }
    truncate_prompt(sample, info_.truncation, settings_.max_prompt_tokens, *settings_.tokens);
  }
  sample.prompt_sha256 = prompt_sha256(sample);
  return sample;
}

SampleReader Workload::open(const OpenSettings& settings) const { return {info_, settings, source(settings)}; }

const std::vector<WorkloadEntry>& workloads() {
  static const std::vector<WorkloadEntry> entries = [] {
    std::vector<WorkloadEntry> sorted = pending();
    std::sort(sorted.begin(), sorted.end(),
              [](const WorkloadEntry& a, const WorkloadEntry& b) { return a.info.name < b.info.name; });
    for (size_t i = 1; i < sorted.size(); ++i) {
      KVARENA_ASSERT(sorted[i - 1].info.name != sorted[i].info.name, sorted[i].info.name + " registered twice");
    }
    return sorted;
  }();
  return entries;
}

const WorkloadEntry& find_workload(const std::string& name, const std::string& place) {
  std::vector<std::string> names;
  for (const WorkloadEntry& entry : workloads()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  fail({.place = place,
        .found = fmt::format("no workload \"{}\"", name),
        .nearest = nearest_name(name, names),
        .action = "`kvarena workloads` lists all"});
}

std::unique_ptr<Workload> make_workload(const std::string& name, const std::string& parameters_json,
                                        const std::string& place) {
  const WorkloadEntry& entry = find_workload(name, place);
  std::unique_ptr<Workload> workload = entry.make();
  workload->info_ = entry.info;
  const json object = json::parse(parameters_json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail({.place = place, .found = parameters_json, .expected = "a JSON object of parameters"});
  std::vector<std::string> problems =
      read_parameters(object, place, [&](ParameterVisitor& visitor) { workload->parameters(visitor); });
  if (problems.empty()) {
    for (const std::string& problem : workload->problems()) problems.push_back(place + ": " + problem);
  }
  if (!problems.empty()) throw UserError(fmt::format("{}", fmt::join(problems, "\n")));
  workload->describe(workload->info_);
  return workload;
}

std::vector<ParameterInfo> workload_parameters(const WorkloadEntry& entry) {
  const std::unique_ptr<Workload> workload = entry.make();
  return list_parameters([&](ParameterVisitor& visitor) { workload->parameters(visitor); });
}

WorkloadRegistration::WorkloadRegistration(WorkloadInfo info, std::function<std::unique_ptr<Workload>()> make,
                                           std::source_location where) {
  pending().push_back({std::move(info), std::move(make), where.file_name()});
}

}  // namespace kvarena::datasets
