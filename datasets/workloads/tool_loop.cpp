// A tool loop with a state: a porter's calls move guests, tell rooms and send things there. Earlier requests are
// written with the right calls and their results; the last ones are live: the model's own calls are carried out, their
// results come back with the next request, and what is judged is the state at the end. The room that a call needs was
// said once, long ago; was changed since; or has just been told by a tool.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "datasets/draw.h"
#include "datasets/hotel.h"
#include "datasets/workload.h"
#include "harness/core/error.h"
#include "harness/core/json_text.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

// Words that tokenizers of small models have whole.
constexpr std::array kGuests = {
    "Alice",     "Anna",  "Arthur", "Carl",  "Daniel", "David",   "Frank",  "Fred",    "George", "Henry",
    "Jack",      "James", "Jane",   "John",  "Leon",   "Lily",    "Louis",  "Maria",   "Marie",  "Mark",
    "Martin",    "Max",   "Paul",   "Peter", "Ray",    "Robert",  "Rose",   "Samuel",  "Sarah",  "Scott",
    "Simon",     "Tom",   "Victor", "Adam",  "Mary",   "William", "Thomas", "Charles", "Joseph", "Michael",
    "Richard",   "Chris", "Alex",   "Sam",   "Ben",    "Dan",     "Jim",    "Bob",     "Bill",   "Lee",
    "Elizabeth", "Jean",  "Ann",    "Emily", "Andrew", "Matthew", "Edward", "Stephen", "Kim",    "Jeff",
    "Josh",      "Nick",  "Tim",    "Matt",  "Luke",   "Taylor",  "Jacob",  "Lewis",   "Ed",     "Phil"};
constexpr std::array kItems = {"radio", "chair", "clock", "bucket", "rug",    "book",  "table",  "phone", "key",
                               "cup",   "box",   "bag",   "card",   "letter", "paper", "glass",  "plate", "bed",
                               "coat",  "ball",  "bread", "milk",   "map",    "ring",  "camera", "flower"};

constexpr size_t kFewestOthers = 6;       // guests of earlier requests beside those of live ones
constexpr size_t kTurnsOfAGuest = 4;      // earlier requests for each of them, until all names are used
constexpr int64_t kTurnTokens = 50;       // of an earlier request, at most
constexpr int64_t kMostResultBytes = 64;  // of a tool's result
constexpr int64_t kFrameTokens = 32;      // around a request

constexpr const char* kInstruction =
    "A hotel's porter answers every request with one call of a tool.\n"
    "move(guest, room): a guest moves to a room\n"
    "find(name): tells the room of a guest\n"
    "send(item, guest, room): sends an item to the room of a guest\n";

struct LoopParameters {
  int64_t turns = 12;
  std::optional<int64_t> context_tokens;
  int64_t live = 4;
  std::string style = "completion";
  int64_t samples = 20;
  int64_t seed = 1;
};

/// A request, its right call, and rooms that its guest was in before.
struct Step {
  std::string request;
  ToolCall call;
  std::vector<int64_t> stale;
};

/// Rooms of guests, in the order in which they move there.
using Rooms = std::map<std::string, std::vector<int64_t>>;

Step move_step(const std::string& guest, int64_t room) {
  return {fmt::format("Move \"{}\" to room {}.", guest, room), {"move", {{"guest", guest}, {"room", room}}}, {}};
}

Step find_step(const std::string& guest) {
  return {fmt::format("Find \"{}\".", guest), {"find", {{"name", guest}}}, {}};
}

Step send_step(const std::string& guest, const std::string& item, const std::vector<int64_t>& rooms) {
  return {fmt::format("Send a \"{}\" to \"{}\".", item, guest),
          {"send", {{"item", item}, {"guest", guest}, {"room", rooms.back()}}},
          {rooms.begin(), rooms.end() - 1}};
}

/// A sample's requests.
struct Script {
  std::vector<Step> earlier;
  std::vector<Step> live;
};

/// Writes scripts. Live requests, and the rooms of their guests, do not depend on how many turns are before them; the
/// places of the latter, and all other turns, are drawn apart.
class ScriptWriter {
 public:
  ScriptWriter(const LoopParameters& parameters, size_t number)
      : live_(parameters.live), seed_(static_cast<uint64_t>(parameters.seed)), number_(number) {}

  [[nodiscard]] Script write(int64_t turns) const {
    Draw draw(seed_, fmt::format("tool loop {}", number_));
    const std::vector<size_t> names = draw.choose(kGuests.size(), kGuests.size());
    const auto guests = static_cast<size_t>((live_ + kCycle - 1) / kCycle) * kGuestsOfCycle;
    Rooms rooms;
    std::vector<std::string> told;  // guests whose moves live requests need, once a move
    for (size_t i = 0; i < guests; ++i) {
      const std::string guest = kGuests[names[i]];
      const size_t moves = i % kGuestsOfCycle == kMovedTwice ? 2 : 1;
      for (size_t move = 0; move < moves; ++move) rooms[guest].push_back(room(draw));
      told.insert(told.end(), moves, guest);
    }
    Script script;
    const std::vector<size_t> others(names.begin() + static_cast<ptrdiff_t>(guests), names.end());
    script.earlier = earlier(std::max(static_cast<size_t>(turns), told.size()), told, rooms, others);
    for (int64_t i = 0; i < live_; ++i) script.live.push_back(live_step(static_cast<size_t>(i), names, draw, rooms));
    return script;
  }

 private:
  static constexpr int64_t kCycle = 6;         // live requests until their kinds come again
  static constexpr size_t kGuestsOfCycle = 4;  // that these are about
  static constexpr size_t kMovedTwice = 2;     // of these, one who had another room before

  static int64_t room(Draw& draw) { return draw.between(101, 999); }

  /// A guest who moves, and is then sent something; one whose room was told once; one who had moved before; one who is
  /// looked for, and is then sent something.
  static Step live_step(size_t i, const std::vector<size_t>& names, Draw& draw, Rooms& rooms) {
    constexpr std::array<size_t, kCycle> kGuestOf = {0, 0, 1, kMovedTwice, 3, 3};
    const size_t kind = i % kCycle;
    const std::string guest = kGuests[names[i / kCycle * kGuestsOfCycle + kGuestOf[kind]]];
    std::vector<int64_t>& of_guest = rooms.at(guest);
    if (kind == 4) return find_step(guest);
    if (kind != 0) return send_step(guest, draw.pick(kItems), of_guest);
    Step step = move_step(guest, room(draw));
    step.stale = of_guest;
    of_guest.push_back(std::get<int64_t>(step.call.arguments.back().second));
    return step;
  }

  [[nodiscard]] std::vector<Step> earlier(size_t turns, std::vector<std::string> told, const Rooms& rooms,
                                          const std::vector<size_t>& others) const {
    Draw draw(seed_, fmt::format("tool loop {} of {}", number_, turns));
    std::vector<size_t> places = draw.choose(told.size(), turns);
    std::ranges::sort(places);
    draw.shuffle(told);
    const size_t names = std::min(others.size(), std::max(kFewestOthers, turns / kTurnsOfAGuest));
    Rooms of_others;
    std::map<std::string, size_t> moves;
    std::vector<Step> steps;
    for (size_t turn = 0, next = 0; turn < turns; ++turn) {
      if (next < places.size() && places[next] == turn) {
        const std::string& guest = told[next++];
        steps.push_back(move_step(guest, rooms.at(guest)[moves[guest]++]));
      } else {
        steps.push_back(other_step(kGuests[others[draw.below(names)]], draw, of_others));
      }
    }
    return steps;
  }

  static Step other_step(const std::string& guest, Draw& draw, Rooms& rooms) {
    std::vector<int64_t>& of_guest = rooms[guest];
    const size_t kind = draw.below(10);
    if (kind < 5 || of_guest.empty()) {
      of_guest.push_back(room(draw));
      return move_step(guest, of_guest.back());
    }
    return kind < 8 ? send_step(guest, draw.pick(kItems), of_guest) : find_step(guest);
  }

  int64_t live_;
  uint64_t seed_;
  size_t number_;
};

/// A tool's result.
struct Result {
  std::string text;
  std::string tool;
};

/// The place of a result in a text that tells it before all else.
ToolResult place_of(const Result& result, const std::string& text) {
  constexpr std::string_view kMark = "Result: ";
  const size_t begin = text.find(kMark) + kMark.size();
  return {.begin = begin, .end = begin + result.text.size(), .tool = result.tool};
}

/// The hotel before the live requests, and what they are: what a reply needs.
struct LiveHotel {
  Hotel start;
  std::vector<Step> steps;
  bool chat = false;

  [[nodiscard]] std::string asked_behind(const std::string& result, const std::string& request) const {
    return chat ? fmt::format("Result: {}\nRequest: {}", result, request)
                : fmt::format("\nResult: {}\n\nRequest: {}\nCall:", result, request);
  }

  [[nodiscard]] LiveReply reply(std::span<const std::string> answers) const {
    Hotel hotel = start;
    json log = json::array();
    Result result;
    for (const std::string& answer : answers) {
      const std::optional<ToolCall> call = read_call(answer);
      result = {call ? hotel.carry_out(*call) : "error: not a call", call ? call->name : ""};
      log.push_back({{"answer", answer}, {"call", call ? to_json(*call) : json()}, {"result", result.text}});
    }
    LiveReply reply{
        .message = "", .record = json_text(json{{"steps", log}, {"state", hotel.changes(start)}}), .results = {}};
    if (answers.size() == steps.size()) return reply;
    reply.message = asked_behind(result.text, steps[answers.size()].request);
    reply.results = {place_of(result, reply.message)};
    return reply;
  }
};

class LoopSource final : public SampleSource {
 public:
  LoopSource(LoopParameters parameters, const TokenCounter* tokens)
      : parameters_(std::move(parameters)), tokens_(tokens) {}

  bool next(Sample& sample) override {
    if (made_ == parameters_.samples) return false;
    const ScriptWriter writer(parameters_, static_cast<size_t>(made_));
    int64_t turns = parameters_.turns;
    compose(sample, writer.write(turns));
    while (parameters_.context_tokens) {
      const int64_t missing = *parameters_.context_tokens - tokens_of(sample);
      if (missing <= 0) break;
      turns += 1 + missing / kTurnTokens;
      compose(sample, writer.write(turns));
    }
    sample.id = fmt::format("{}-{}", parameters_.style, made_++);
    return true;
  }

 private:
  [[nodiscard]] int64_t tokens_of(const Sample& sample) const {
    int64_t tokens = 0;
    for (const Message& message : sample.messages) tokens += std::ssize(tokens_->encode(message.content));
    return tokens;
  }

  void compose(Sample& sample, const Script& script) const {
    auto live = std::make_shared<LiveHotel>();
    live->chat = parameters_.style == "chat";
    live->steps = script.live;
    sample.messages = {{live->chat ? "system" : "user", kInstruction}};
    sample.chat_template = live->chat;
    sample.references.clear();
    sample.results.clear();
    Result result;
    for (const Step& step : script.earlier) {
      ask(sample, result, step.request);
      result = {live->start.carry_out(step.call), step.call.name};
      answer(sample, to_text(step.call));
    }
    ask(sample, result, script.live.front().request);
    sample.question = {sample.messages.size() - 1, sample.messages.back().content.rfind("Request: ")};
    judge(sample, script, *live);
    sample.live.reply = [live](std::span<const std::string> answers) { return live->reply(answers); };
    if (!live->chat) sample.generation.stop = {"\n"};
  }

  void ask(Sample& sample, const Result& result, const std::string& request) const {
    const bool chat = parameters_.style == "chat", first = result.text.empty();
    std::string text = chat ? fmt::format("Request: {}", request) : fmt::format("\nRequest: {}\nCall:", request);
    if (!first) text = fmt::format("{}Result: {}\n{}", chat ? "" : "\n", result.text, text);
    if (chat) sample.messages.push_back({"user", ""});
    std::string& content = sample.messages.back().content;
    if (!first) {
      ToolResult& told = sample.results.emplace_back(place_of(result, text));
      told = {sample.messages.size() - 1, told.begin + content.size(), told.end + content.size(), told.tool};
    }
    content += text;
  }

  void answer(Sample& sample, const std::string& call) const {
    if (parameters_.style == "chat") return sample.messages.push_back({"assistant", call});
    sample.messages.front().content += " " + call;
  }

  /// Notes for the metric the right calls, rooms that are no longer right, and the state they lead to.
  static void judge(Sample& sample, const Script& script, const LiveHotel& live) {
    Hotel end = live.start;
    json stale = json::array();
    sample.live.most_tokens = 0;
    for (const Step& step : script.live) {
      (void)end.carry_out(step.call);
      sample.references.push_back(json_text(to_json(step.call)));
      stale.push_back({{"room", step.stale}});
      sample.live.most_tokens += std::ssize(step.request) + kMostResultBytes + kFrameTokens;
    }
    sample.live.most_tokens += std::ssize(script.live) * sample.generation.max_new_tokens;
    sample.extras =
        json_text(json{{"state", end.changes(live.start)}, {"stale", stale}, {"turns", script.earlier.size()}});
  }

  LoopParameters parameters_;
  const TokenCounter* tokens_;
  int64_t made_ = 0;
};

class ToolLoop final : public Workload {
 public:
  void parameters(ParameterVisitor& p) override {
    p("turns", parameters_.turns)
        .min(1)
        .doc("earlier requests, with their right calls and results; at least those needed");
    p("context_tokens", parameters_.context_tokens)
        .min(1)
        .doc("adds earlier requests until the prompt has about this many tokens");
    p("live", parameters_.live).min(1).max(60).doc("live requests, whose calls the model makes");
    p("style", parameters_.style)
        .one_of({"completion", "chat"})
        .doc("completion: one text of requests, calls and results, without chat template; chat: messages");
    p("samples", parameters_.samples).min(1).max(kMostGenerated).doc("samples in all");
    p("seed", parameters_.seed).min(0).doc("seed of guests, rooms, items and their order");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    if (parameters_.context_tokens && settings.tokens == nullptr) {
      fail({.place = info().name, .found = "context_tokens without a tokenizer", .expected = "both or neither"});
    }
    return std::make_unique<LoopSource>(parameters_, settings.tokens);
  }

 private:
  LoopParameters parameters_;
};

KVARENA_WORKLOAD(ToolLoop, {.name = "tool_loop",
                            .family = "tool_loop",
                            .title = "Tool calls that change a state, carried out one after the other",
                            .source = "generated",
                            .licence = "made by the project",
                            .metrics = {"tool_loop"},
                            .samples = 20,
                            .generation = {.max_new_tokens = 32}});

}  // namespace
}  // namespace kvarena::datasets
