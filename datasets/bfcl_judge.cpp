#include "datasets/bfcl_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "datasets/bfcl.h"
#include "harness/core/error.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

constexpr const char* kPlace = "BFCL's judge";
constexpr int64_t kFrameTokens = 16;  // of a chat template around a message, at most

/// Reads what follows the answers.
LiveReply reply_of(const json& said) {
  LiveReply reply;
  if (said.contains("record")) {
    reply.record = said["record"].dump();
    return reply;
  }
  const json& messages = said["messages"];
  const auto answered = [](const json& message) { return message["role"] == "assistant"; };
  if (std::ranges::any_of(messages, answered)) {
    reply.message = messages.back()["content"];
    reply.results = bfcl_results(reply.message);
    return reply;
  }
  for (const json& message : messages) reply.anew.push_back({message["role"], message["content"]});
  return reply;
}

}  // namespace

BfclJudge::BfclJudge(std::filesystem::path script) : script_(std::move(script)), process_(kPlace) {}

json BfclJudge::ask(const std::string& task, std::span<const std::string> answers,
                    const std::function<int64_t(const std::string&)>& length) {
  const std::scoped_lock lock(one_at_a_time_);
  if (!process_.running()) start();
  process_.send(fmt::format(R"({{"task": {}, "answers": {}}})", task, json_text(json(answers))));
  json said = receive();
  while (said.is_object() && said.contains("count")) {
    process_.send(json{{"tokens", length(said["count"])}}.dump());
    said = receive();
  }
  const json messages = said.is_object() ? said.value("messages", json()) : json();
  if ((messages.is_array() && !messages.empty()) || (said.is_object() && said.contains("record"))) return said;
  process_.stop();
  const std::string reason = said.is_object() ? said.value("error", "") : "";
  fail({.place = kPlace, .found = reason.empty() ? said.dump().substr(0, 80) : reason, .expected = "what follows"});
}

void BfclJudge::start() {
  process_.start({script_.string()});
  const json said = receive();
  if (said.is_object() && said.contains("ready")) return;
  process_.stop();
  const bool absent = said.is_object() && said.contains("absent");
  fail({.place = kPlace,
        .found = absent ? said.value("error", "") : said.dump().substr(0, 80),
        .expected = "BFCL's package",
        .action = "`python3 -m pip install bfcl-eval==2026.3.23` puts it there; KVARENA_PYTHON names another Python "
                  "that has it"});
}

json BfclJudge::receive() {
  const std::chrono::seconds patience = python_patience();
  if (std::optional<json> said = process_.receive(std::chrono::steady_clock::now() + patience)) return *said;
  process_.stop();
  fail({.place = kPlace,
        .found = fmt::format("no answer within {} s", patience.count()),
        .expected = "one soon",
        .action = "where calls take that long, put more seconds into KVARENA_PYTHON_SECONDS"});
}

BfclConversation::BfclConversation(const TokenCounter* tokens)
    : judge_(std::make_shared<BfclJudge>(own_file("bfcl_judge.py"))), tokens_(tokens) {}

void BfclConversation::begin(Sample& sample, Row task, int64_t room) const {
  task["room"] = room;
  task["answer_tokens"] = kAnswerTokens;
  const auto length = [tokens = tokens_](const std::string& text) {
    return kFrameTokens + (tokens == nullptr ? std::ssize(text) : std::ssize(tokens->encode(text)));
  };
  sample.live.most_tokens = room;
  sample.live.reply = [judge = judge_, length,
                       text = std::make_shared<const std::string>(task.dump())](std::span<const std::string> answers) {
    return reply_of(judge->ask(*text, answers, length));
  };
}

}  // namespace kvarena::datasets
