// Traces of services that tell which blocks a prompt has, by hashes, and no text: Mooncake's (kvcache-ai/Mooncake,
// FAST25-release/traces) and Weka's of coding agents (callanjfox/kv-cache-tester @9ebcbac7, traces). A block gets a
// text that follows from its hash alone, so that prompts share what they shared. Sessions are turns with think times.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/arrivals.h"
#include "datasets/context_rows.h"
#include "datasets/draw.h"
#include "harness/core/error.h"

namespace kvarena::datasets {
namespace {

// Words that are one token in most vocabularies, with the blank before them.
constexpr std::array kWords = {"the",  "of",    "and",   "to",    "in",    "is",    "that", "for",   "was",   "on",
                               "are",  "with",  "as",    "be",    "at",    "one",   "have", "this",  "from",  "or",
                               "had",  "by",    "but",   "some",  "what",  "there", "we",   "can",   "out",   "other",
                               "were", "all",   "your",  "when",  "up",    "use",   "word", "how",   "said",  "each",
                               "she",  "which", "do",    "their", "time",  "if",    "will", "way",   "about", "many",
                               "then", "them",  "would", "like",  "these", "long",  "make", "thing", "see",   "him",
                               "two",  "has",   "look",  "more",  "day",   "could"};

constexpr int64_t kMooncakeBlock = 512;            // tokens
constexpr int64_t kMostTokens = int64_t{1} << 22;  // of a prompt
constexpr int64_t kFewestTokens = 2;               // of a shrunk one: a context and a question

/// A request of a trace.
struct BlockTurn {
  RecordedTurn recorded;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<std::string> blocks;  // names; equal ones are equal tokens
};

void add_words(std::string& text, const std::string& block, int64_t count) {
  Draw draw(1, "block " + block);
  for (int64_t i = 0; i < count; ++i) text += fmt::format("{}{}", text.empty() ? "" : " ", draw.pick(kWords));
}

/// Tells the sessions of a trace that does not name them: a request goes on with the one whose prompt, as far as its
/// blocks are full, begins its own. A prompt whose last full block another session had first is a beginning that many
/// share, and nothing goes on with it.
class SessionFinder {
 public:
  /// The session and its think time: a trace of arrivals alone tells the time since the one before.
  [[nodiscard]] RecordedTurn place(const Arrival& arrival) {
    const std::vector<int64_t>& blocks = arrival.blocks;
    RecordedTurn turn{.session = "", .think_s = 0, .at_s = arrival.time_s};
    for (size_t full = blocks.size(); full > 0 && turn.session.empty(); --full) {
      const auto end = ends_.find(std::vector(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(full)));
      if (end == ends_.end()) continue;
      turn.session = end->second.session;
      turn.think_s = std::max(0.0, arrival.time_s - end->second.at_s);
      ends_.erase(end);
    }
    if (turn.session.empty()) turn.session = fmt::format("s{}", sessions_++);
    const auto full = static_cast<size_t>(arrival.prompt_tokens / kMooncakeBlock);
    for (const int64_t block : blocks) first_.try_emplace(block, turn.session);
    if (full > 0 && full <= blocks.size() && first_.at(blocks[full - 1]) == turn.session) {
      ends_[{blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(full)}] = {turn.session, arrival.time_s};
    }
    return turn;
  }

 private:
  struct End {
    std::string session;
    double at_s = 0;
  };

  std::map<std::vector<int64_t>, End> ends_;  // of sessions, by the full blocks of their newest prompt
  std::map<int64_t, std::string> first_;      // sessions that had blocks first
  int64_t sessions_ = 0;
};

/// Makes samples of turns; ids are those of sessions, with the turn's number in its own.
class TurnWriter {
 public:
  TurnWriter(int64_t block, int64_t shrink) : block_(block), shrink_(shrink) {}

  Sample write(const BlockTurn& turn, Sample sample, const std::string& place) {
    if (turn.prompt_tokens < 1 || turn.prompt_tokens > kMostTokens) {
      fail({.place = place,
            .found = fmt::format("a prompt of {} tokens", turn.prompt_tokens),
            .expected = fmt::format("1 to {}", kMostTokens)});
    }
    const std::string& session = turn.recorded.session;
    sample.id = fmt::format("{}-{}", session, turns_[session]++);
    sample.recorded = turn.recorded;
    sample.extras = Row{{"session", session}, {"pre_gap_s", turn.recorded.think_s}}.dump();
    sample.generation.max_new_tokens = shrunk(turn.output_tokens);
    std::string& text = sample.messages.emplace_back(Message{"user", ""}).content;
    int64_t left = std::max(kFewestTokens, shrunk(turn.prompt_tokens));
    size_t newest = 0;
    const auto add = [&](const std::string& block, int64_t count) {
      if (count > 0) newest = text.size();
      add_words(text, block, count);
      left -= count;
    };
    for (const std::string& block : turn.blocks) add(block, std::min(shrunk(block_), left));
    add("behind the blocks of " + sample.id, left);
    // The question is the last block, the tokens behind blocks, or a word.
    sample.question = {0, newest > 0 ? newest : text.rfind(' ')};
    return sample;
  }

 private:
  [[nodiscard]] int64_t shrunk(int64_t tokens) const { return std::max<int64_t>(1, tokens / shrink_); }

  int64_t block_;
  int64_t shrink_;
  std::map<std::string, int64_t> turns_;  // so far
};

class BlockTrace : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("shrink", shrink_).min(1).doc("divides the tokens of blocks, prompts and answers, for models of a small window");
  }

 protected:
  int64_t shrink_ = 1;
};

class MooncakeTrace final : public BlockTrace {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    auto finder = std::make_shared<SessionFinder>();
    auto writer = std::make_shared<TurnWriter>(kMooncakeBlock, shrink_);
    const DataFile file = require_data_file(info(), settings.data_dir);
    return make_row_source(file, [finder, writer](const Row& row, const std::string& place, Sample& sample) {
      const Arrival arrival = mooncake_arrival(row, place);
      BlockTurn turn;
      turn.recorded = finder->place(arrival);
      turn.prompt_tokens = arrival.prompt_tokens;
      turn.output_tokens = arrival.output_tokens;
      for (const int64_t block : arrival.blocks) turn.blocks.push_back(std::to_string(block));
      sample = writer->write(turn, std::move(sample), place);
      return true;
    });
  }
};

double seconds_field(const Row& row, const char* field, const std::string& place) {
  const Row& value = any_field(row, field, place);
  if (value.is_number()) return value.get<double>();
  fail({.place = place, .found = value.dump(), .expected = fmt::format("seconds in \"{}\"", field)});
}

/// The turns of one row of Weka's, a session: the main agent's, without those of agents that it starts. Where a turn
/// does not tell how long it was thought of, that is the time since the one before, less what the answer took if known.
std::vector<BlockTurn> weka_turns(const Row& row, const std::string& place) {
  const std::string session = string_field(row, "id", place);
  const bool global = row.contains("hash_id_scope") && row["hash_id_scope"] == "global";
  std::vector<BlockTurn> turns;
  double answered_s = 0;
  for (const Row& request : any_field(row, "requests", place)) {
    const std::string at = fmt::format("{}: requests[{}]", place, turns.size());
    if (string_field(request, "type", at) == "subagent") continue;
    const double time_s = seconds_field(request, "t", at);
    BlockTurn turn;
    turn.recorded.session = session;
    turn.prompt_tokens = integer_field(request, "in", at);
    turn.output_tokens = integer_field(request, "out", at);
    turn.recorded.think_s =
        request.contains("think_time") ? seconds_field(request, "think_time", at) : std::max(0.0, time_s - answered_s);
    answered_s = time_s + (request.contains("api_time") ? seconds_field(request, "api_time", at) : 0);
    for (const Row& id : any_field(request, "hash_ids", at)) {
      if (!id.is_number_integer()) fail({.place = at, .found = id.dump(), .expected = "integers in \"hash_ids\""});
      turn.blocks.push_back(fmt::format("{}{}", global ? "" : session + " ", id.get<int64_t>()));
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

class WekaTrace final : public BlockTrace {
 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    const DataFile file = require_data_file(info(), settings.data_dir);
    return make_context_source(file,
                               [shrink = shrink_](const Row& row, const std::string& place, const Sample& sample) {
                                 TurnWriter writer(integer_field(row, "block_size", place), shrink);
                                 std::vector<Sample> samples;
                                 for (const BlockTurn& turn : weka_turns(row, place))
                                   samples.push_back(writer.write(turn, sample, place));
                                 return samples;
                               });
  }
};

KVARENA_WORKLOAD(
    MooncakeTrace,
    {.name = "mooncake-trace",
     .family = "traces",
     .title = "Mooncake trace: requests of a chat service, by blocks",
     .source = "https://github.com/kvcache-ai/Mooncake (FAST25-release/traces)",
     .download = "mkdir -p $KVARENA_DATA/mooncake && curl -Lo $KVARENA_DATA/mooncake/conversation_trace.jsonl "
                 "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release/traces/"
                 "conversation_trace.jsonl",
     .licence = "Apache-2.0",
     .metrics = {"kl"},
     .folder = "mooncake",
     .files = {"conversation_trace.jsonl", "toolagent_trace.jsonl", "conversation_trace.head.jsonl"},
     .samples = 12031,
     .chat_template = false,
     .generation = {.max_new_tokens = 512}});

KVARENA_WORKLOAD(WekaTrace,
                 {.name = "weka-trace",
                  .family = "traces",
                  .title = "Weka's trace of coding agents, by blocks: one session a row",
                  .source = "https://github.com/callanjfox/kv-cache-tester (traces)",
                  .download = "git clone --depth 1 https://github.com/callanjfox/kv-cache-tester && mkdir -p "
                              "$KVARENA_DATA/weka && jq -c . kv-cache-tester/traces/trace_*.json > "
                              "$KVARENA_DATA/weka/traces.jsonl",
                  .licence = "Apache-2.0",
                  .metrics = {"kl"},
                  .folder = "weka",
                  .files = {"traces.jsonl"},
                  .samples = 59204,
                  .chat_template = false,
                  .generation = {.max_new_tokens = 512}});

}  // namespace
}  // namespace kvarena::datasets
