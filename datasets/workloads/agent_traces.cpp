// Agent traces (LMCache): conversations that grow from request to request, for prefix reuse and for KL along real
// answers. Two public forms: whole conversations so far (sammshen/lmcache-agentic-traces, exported to JSON Lines) and
// pieces of input and output per request (LMCache/lmcache-agent-trace @16a14ada), joined here to conversations.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/row_source.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

// Tool results have no slot in many chat templates; they become user turns, and extras.tool_turns counts them.
bool fill_conversation(const Row& row, const std::string& place, Sample& sample) {
  const Row& input = any_field(row, "input", place);
  if (!input.is_array() || input.empty()) {
    fail({.place = place, .found = "\"input\" without messages", .expected = "a list of messages"});
  }
  int64_t tool_turns = 0;
  for (const Row& message : input) {
    std::string role = string_field(message, "role", place);
    const Row& content = any_field(message, "content", place);
    const bool result = role == "tool";
    if (result) role = "user";
    tool_turns += result;
    sample.messages.push_back({role, content.is_string() ? content.get<std::string>() : content.dump()});
    if (!result) continue;
    sample.results.push_back(
        {.message = sample.messages.size() - 1, .begin = 0, .end = sample.messages.back().content.size(), .tool = ""});
  }
  sample.id = fmt::format("{}-{}", string_field(row, "session_id", place), sample.id);
  sample.question = {sample.messages.size() - 1, 0};
  sample.generation.max_new_tokens = std::max<int64_t>(1, integer_field(row, "output_length", place));
  const Row& gap = any_field(row, "pre_gap", place);
  if (!gap.is_number()) fail({.place = place, .found = gap.dump(), .expected = "seconds in \"pre_gap\""});
  sample.recorded = {.session = row["session_id"].get<std::string>(), .think_s = gap.get<double>(), .at_s = {}};
  sample.extras = Row{{"session", row["session_id"]}, {"pre_gap_s", gap}, {"tool_turns", tool_turns}}.dump();
  return true;
}

// State of the piecewise form: what each session has said so far.
struct Session {
  std::vector<Message> history;
  int64_t last_us = 0;
  int64_t turns = 0;
};

bool fill_piece(std::map<std::string, Session>& sessions, const Row& row, const std::string& place, Sample& sample) {
  const std::string id = string_field(row, "session_id", place);
  const int64_t time_us = integer_field(row, "timestamp", place);
  const std::string output = string_field(row, "output", place);
  Session& session = sessions[id];
  session.history.push_back({"user", string_field(row, "input", place)});
  sample.id = fmt::format("{}-{}", id, session.turns);
  sample.messages = session.history;
  sample.question = {sample.messages.size() - 1, 0};
  sample.references = {output};
  const double gap_s = session.turns == 0 ? 0 : static_cast<double>(time_us - session.last_us) * 1e-6;
  sample.recorded = {.session = id, .think_s = gap_s, .at_s = static_cast<double>(time_us) * 1e-6};
  sample.extras = Row{{"session", id}, {"pre_gap_s", gap_s}, {"empty_output", output.empty()}}.dump();
  if (!output.empty()) session.history.push_back({"assistant", output});
  session.last_us = time_us;
  ++session.turns;
  return true;
}

class AgenticTraces final : public Workload {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return make_row_source(require_data_file(info(), settings.data_dir), fill_conversation);
  }
};

class AgentTrace final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("file", file_)
        .doc(
            "session file below the data folder's lmcache-agent-trace; empty = the one that `kvarena workloads` shows");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    WorkloadInfo wanted = info();
    if (!file_.empty()) wanted.files = {file_};
    const DataFile file = require_data_file(wanted, settings.data_dir);
    auto sessions = std::make_shared<std::map<std::string, Session>>();
    return make_row_source(file, [sessions](const Row& row, const std::string& place, Sample& sample) {
      return fill_piece(*sessions, row, place, sample);
    });
  }

 private:
  std::string file_;
};

KVARENA_WORKLOAD(
    AgenticTraces,
    {.name = "agentic-traces",
     .family = "traces",
     .title = "LMCache agentic traces: 767 sessions of growing conversations",
     .source = "https://huggingface.co/datasets/sammshen/lmcache-agentic-traces (parquet)",
     .download = "python3 -c \"import datasets, os; datasets.load_dataset('sammshen/lmcache-agentic-traces', "
                 "split='train').to_json(os.environ['KVARENA_DATA'] + '/lmcache-agentic-traces/traces.jsonl')\"",
     .licence = "MIT",
     .metrics = {"kl"},
     .folder = "lmcache-agentic-traces",
     .files = {"traces.jsonl", "synthetic.jsonl"},
     .samples = 24900,
     .generation = {.max_new_tokens = 512}});

KVARENA_WORKLOAD(AgentTrace, {.name = "agent-trace",
                              .family = "traces",
                              .title = "LMCache agent trace: one session of miniswe, taubench or magagent",
                              .source = "https://github.com/LMCache/lmcache-agent-trace",
                              .download = "git clone --depth 1 https://github.com/LMCache/lmcache-agent-trace "
                                          "$KVARENA_DATA/lmcache-agent-trace",
                              .licence = "Apache-2.0",
                              .metrics = {"kl", "output_f1"},
                              .folder = "lmcache-agent-trace",
                              .files = {"session.jsonl", "189f0222310bd8eee310f204e91b9c84.jsonl"},
                              .samples = 6,
                              .generation = {.max_new_tokens = 512}});

}  // namespace
}  // namespace kvarena::datasets
