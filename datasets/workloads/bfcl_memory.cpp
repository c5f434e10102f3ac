// BFCL v4, memory: an assistant talks with a user on several days, each in a context of its own, and keeps what it is
// to remember by calls to a memory, whose core its system prompt shows. Then it is asked about the user, each question
// in a context of its own too. A sample is one user: the days, and all questions behind them. Memory, loop and verdicts
// are the package's own (bfcl_judge.h).

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "datasets/bfcl.h"
#include "datasets/bfcl_judge.h"
#include "datasets/row_source.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/home.h"

namespace kvarena::datasets {
namespace {

// constants/default_prompts.py: MEMORY_AGENT_SETTINGS, MEMORY_BACKEND_INSTRUCTION_*, and the format of final answers.
struct Scenario {
  const char* name;
  const char* setting;
};

constexpr Scenario kScenarios[] = {
    {"student",
     "You are an academic-support assistant for college student. Remember key personal and academic details discussed "
     "across sessions, and draw on them to answer questions or give guidance."},
    {"customer",
     "You are a general customer support assistant for an e-commerce platform. Your task is to understand and remember "
     "information that can be used to provide information about user inquiries, preferences, and offer consistent, "
     "helpful assistance over multiple interactions."},
    {"finance",
     "You are a high-level executive assistant supporting a senior finance professional. Retain and synthesize both "
     "personal and professional information including facts, goals, prior decisions, and family life across sessions "
     "to provide strategic, context-rich guidance and continuity."},
    {"healthcare",
     "You are a healthcare assistant supporting a patient across appointments. Retain essential medical history, "
     "treatment plans, and personal preferences to offer coherent, context-aware guidance and reminders."},
    {"notetaker",
     "You are a personal organization assistant. Capture key information from conversations, like tasks, deadlines, "
     "and preferences, and use it to give reliable reminders and answers in future sessions."}};

constexpr const char* kCoreAndArchive =
    "{}\n\nYou have access to an advanced memory system, consisting of two memory types 'Core Memory' and 'Archival "
    "Memory'. Both type of memory is persistent across multiple conversations with the user, and can be accessed in a "
    "later interactions. You should actively manage your memory data to keep track of important information, ensure "
    "that it is up-to-date and easy to retrieve to provide personalized responses to the user later.\n\n"
    "The Core memory is limited in size, but always visible to you in context. The Archival Memory has a much larger "
    "capacity, but will be held outside of your immediate context due to its size.\n\n"
    "Here is the content of your Core Memory from previous interactions:\n{}\n";
constexpr const char* kUnified =
    "{}\n\nYou have access to an advanced memory system, which is persistent across multiple conversations with the "
    "user, and can be accessed in a later interactions. You should actively manage your memory data to keep track of "
    "important information, ensure that it is up-to-date and easy to retrieve to provide personalized responses to the "
    "user later.\n\n"
    "Here is the content of your memory system from previous interactions:\n{}\n";
constexpr const char* kAnswerFormat =
    "For your final answer to the user, you must respond in this format: {'answer': A short and precise answer to the "
    "question, 'context': A brief explanation of how you arrived at this answer or why it is correct}. If you do not "
    "know the answer, respond with {'answer': 'I do not know', 'context': 'I do not know'}. If you think the question "
    "cannot be properly answered, response with {'answer': 'I cannot answer this question', 'context': A short reason "
    "explaining why this question cannot be answered}.\n";

/// A kind of memory, with the beginning of a system prompt that shows it empty.
struct Backend {
  const char* name;
  const char* title;
  const char* instruction;
  const char* empty;
  bool encodes = false;
};

constexpr Backend kBackends[] = {
    {"kv", "keys and values", kCoreAndArchive, "There is no content in the core memory at this point."},
    {"rec_sum", "one text", kUnified, "There is no content in the memory at this point."},
    {"vector", "texts that an encoder finds", kCoreAndArchive, "{}", /*encodes=*/true}};

std::filesystem::path encoder_of(const Backend& backend) {
  return backend.encodes ? kvarena_home() / "models/all-minilm-l6-v2" : "";
}

/// Rows of one user's sample.
struct User {
  const Scenario* scenario = nullptr;
  Row questions = Row::array();
  Row truth = Row::object();
  std::string place;  // of the first question
};

/// Users in the order of their first questions.
std::vector<User> read_users(const DataFile& file, const BfclAnswers& answers) {
  std::vector<User> users;
  RecordReader rows(file.path);
  while (const auto record = rows.next()) {
    const Row row = parse_object(*record);
    const std::string name = string_field(row, "scenario", record->place);
    const auto* const scenario = std::ranges::find(kScenarios, name, &Scenario::name);
    if (scenario == std::end(kScenarios)) {
      fail({.place = record->place,
            .found = fmt::format("the scenario \"{}\"", name),
            .expected = "one of the memory's five"});
    }
    auto user = std::ranges::find(users, scenario, &User::scenario);
    if (user == users.end()) {
      user = users.insert(user, User{.scenario = scenario});
      user->place = record->place;
    }
    const std::string id = string_field(row, "id", record->place);
    user->truth[id] = bfcl_answer(answers, id, record->place);
    user->questions.push_back(row);
  }
  return users;
}

class UserSource final : public SampleSource {
 public:
  UserSource(const Backend& backend, WorkloadInfo info, DataFile file, int64_t room, const TokenCounter* tokens)
      : backend_(backend),
        info_(std::move(info)),
        file_(std::move(file)),
        room_(room),
        talk_(tokens, encoder_of(backend)),
        functions_(
            with_bfcl_hints(read_bfcl_functions(info_, file_.root, fmt::format("memory_{}.json", backend.name)))),
        users_(read_users(file_, read_bfcl_answers(info_, file_.root))) {}

  bool next(Sample& sample) override {
    if (next_ == users_.size()) return false;
    const User& user = users_[next_++];
    Row task = {{"entries", Row::array()}, {"function", functions_}, {"ground_truth", Row::object()}};
    add_days(user, task["entries"]);
    const Row first = task["entries"][0]["question"][0];
    for (const Row& question : user.questions) task["entries"].push_back(asked(question, user));
    for (const auto& [id, accepted] : user.truth.items()) task["ground_truth"][named(id)] = accepted;
    sample.id = fmt::format("memory_{}-{}", backend_.name, user.scenario->name);
    sample.origin = file_.origin;
    sample.data_sha256 = sha256(task.dump());
    Row turn = first;
    turn.insert(turn.begin(),
                system(fmt::format(fmt::runtime(backend_.instruction), user.scenario->setting, backend_.empty)));
    sample.messages = bfcl_messages(functions_, turn, user.place);
    sample.question = {sample.messages.size() - 1, 0};
    for (const auto& [id, accepted] : user.truth.items()) sample.references.push_back(accepted.dump());
    talk_.begin(sample, std::move(task), room_);
    return true;
  }

 private:
  static Row system(const std::string& content) { return {{"role", "system"}, {"content", content}}; }

  /// "memory_3-customer-3" with this kind of memory: "memory_kv_3-customer-3".
  [[nodiscard]] std::string named(std::string id) const {
    if (id.starts_with("memory")) id.insert(std::string("memory").size(), fmt::format("_{}", backend_.name));
    return id;
  }

  [[nodiscard]] Row entry(const Row& row, const User& user, const std::string& place) const {
    const Row& turns = any_field(row, "question", place);
    if (!turns.is_array() || turns.empty() || !turns[0].is_array() || turns[0].empty()) {
      fail({.place = place,
            .found = "\"question\" without a turn",
            .expected = "a list of turns, each a list of messages"});
    }
    const std::string id = named(string_field(row, "id", place)), memory = fmt::format("MemoryAPI_{}", backend_.name);
    return {{"id", id},
            {"question", turns},
            {"scenario", user.scenario->name},
            {"involved_classes", Row::array({memory})},
            {"initial_config", {{memory, {{"scenario", user.scenario->name}, {"test_id", id}}}}}};
  }

  void add_days(const User& user, Row& entries) const {
    WorkloadInfo days = info_;
    days.folder = "bfcl/memory_prereq_conversation";
    days.files = {fmt::format("memory_{}.json", user.scenario->name)};
    const DataFile file = require_data_file(days, file_.root);
    RecordReader rows(file.path);
    while (const auto record = rows.next()) entries.push_back(entry(parse_object(*record), user, record->place));
    if (entries.empty())
      fail({.place = file.path.string(), .found = "no row", .expected = "conversations to remember"});
  }

  [[nodiscard]] Row asked(const Row& question, const User& user) const {
    Row made = entry(question, user, user.place);
    made["question"][0].insert(made["question"][0].begin(), system(kAnswerFormat));
    return made;
  }

  const Backend& backend_;
  WorkloadInfo info_;
  DataFile file_;
  int64_t room_;
  BfclConversation talk_;
  Row functions_;
  std::vector<User> users_;
  size_t next_ = 0;
};

class BfclMemory final : public Workload {
 public:
  explicit BfclMemory(const Backend& backend) : backend_(backend) {}

  void parameters(ParameterVisitor& p) override {
    p("room", room_)
        .min(BfclConversation::kAnswerTokens)
        .max(1 << 20)
        .doc(
            "tokens for what follows the first answer of a day or question, and for what the memory adds to its "
            "prompt; one that needs more is an error of inference, and the next goes on");
  }

 protected:
  std::unique_ptr<SampleSource> source(const OpenSettings& settings) const override {
    return std::make_unique<UserSource>(backend_, info(), require_data_file(info(), settings.data_dir), room_,
                                        settings.tokens);
  }

 private:
  const Backend& backend_;
  int64_t room_ = 16384;
};

[[maybe_unused]] const bool registered = [] {
  for (const Backend& backend : kBackends) {
    const std::string file = "BFCL_v4_memory.json";
    std::vector<std::string> fetched = {file, "possible_answer/" + file,
                                        fmt::format("multi_turn_func_doc/memory_{}.json", backend.name)};
    for (const Scenario& scenario : kScenarios) {
      fetched.push_back(fmt::format("memory_prereq_conversation/memory_{}.json", scenario.name));
    }
    WorkloadRegistration(
        {.name = fmt::format("bfcl/memory_{}", backend.name),
         .family = "bfcl",
         .title =
             fmt::format("BFCL memory_{}: questions about what a user told on days before, kept as {}; needs bfcl-eval",
                         backend.name, backend.title),
         .source = kBfclSource,
         .download = bfcl_download(fetched),
         .licence = "Apache-2.0",
         .metrics = {"bfcl_memory"},
         .folder = "bfcl",
         .files = {file},
         .samples = 5,
         .generation = {.max_new_tokens = BfclConversation::kAnswerTokens}},
        [&backend] { return std::make_unique<BfclMemory>(backend); });
  }
  return true;
}();

}  // namespace
}  // namespace kvarena::datasets
