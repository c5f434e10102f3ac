#include "datasets/bfcl_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "datasets/bfcl.h"
#include "harness/core/json_text.h"
#include "harness/core/own_files.h"

namespace kvarena::datasets {
namespace {

using nlohmann::json;

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

BfclJudge::BfclJudge(const std::filesystem::path& script, const std::filesystem::path& encoder)
    : judge_({.place = "BFCL's judge",
              .needs = encoder.empty() ? "BFCL's package" : "BFCL's package, and the encoder of its vectors",
              .action = "`python3 -m pip install bfcl-eval==2026.3.23` puts it there; KVARENA_PYTHON names another "
                        "Python that has it"},
             encoder.empty() ? std::vector{script.string()} : std::vector{script.string(), encoder.string()}) {}

json BfclJudge::ask(const std::string& task, std::span<const std::string> answers,
                    const std::function<int64_t(const std::string&)>& length) {
  const auto count = [&](const json& said) -> std::optional<std::string> {
    if (!said.contains("count")) return std::nullopt;
    return json{{"tokens", length(said["count"])}}.dump();
  };
  const auto follows = [](const json& said) {
    const auto messages = said.contains("messages") ? said["messages"] : json();
    return (messages.is_array() && !messages.empty()) || said.contains("record");
  };
  return judge_.ask(fmt::format(R"({{"task": {}, "answers": {}}})", task, json_text(json(answers))),
                    {"what follows", follows}, python_patience(), count);
}

BfclConversation::BfclConversation(const TokenCounter* tokens, const std::filesystem::path& encoder)
    : judge_(std::make_shared<BfclJudge>(own_file("bfcl_judge.py"), encoder)), tokens_(tokens) {}

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
