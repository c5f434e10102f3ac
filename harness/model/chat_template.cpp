#include "harness/model/chat_template.h"

#include <fmt/format.h>

#include <array>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/chat_templates.h"

namespace kvarena {
namespace {

/// Marks of the families; the first whose end a template names is its own.
constexpr std::array<ThinkingMarks, 4> kThinking = {{{"<think>", "</think>"},
                                                     {"[THINK]", "[/THINK]"},
                                                     {"<|channel|>analysis<|message|>", "<|channel|>final<|message|>"},
                                                     {"<seed:think>", "</seed:think>"}}};

std::optional<ThinkingMarks> thinking_of(std::string_view jinja) {
  for (const ThinkingMarks& marks : kThinking) {
    if (jinja.find(marks.close) != std::string_view::npos) return marks;
  }
  return std::nullopt;
}

/// Texts that a template writes in a few conversations; each refusal is an empty text.
std::vector<std::string> samples_of(const ChatTemplate& chat) {
  const ChatMessage system{.role = "system", .content = "s"}, user{.role = "user", .content = " u "},
      answer{.role = "assistant", .content = " <think>\nt\n</think>\n\na "};
  const std::vector<std::vector<ChatMessage>> conversations = {
      {user}, {system, user, answer, user, answer}, {user, answer, user}};
  std::vector<std::string> texts;
  for (const std::vector<ChatMessage>& conversation : conversations) {
    try {
      texts.push_back(chat.render(conversation, /*add_generation_prompt=*/true));
    } catch (const UserError&) {
      texts.emplace_back();
    }
  }
  return texts;
}

std::string nearest_of(const ChatTemplate& chat, const std::string& bos, const std::string& eos) {
  const std::vector<std::string> texts = samples_of(chat);
  for (const NamedTemplate& known : named_templates()) {
    if (samples_of(ChatTemplate::named(known.name, bos, eos)) == texts) return std::string(known.name);
  }
  return "custom";
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view jinja, std::string bos, std::string eos)
    : program_(jinja),
      variables_{
          {"tools", nullptr}, {"documents", nullptr}, {"bos_token", std::move(bos)}, {"eos_token", std::move(eos)}},
      thinking_(thinking_of(jinja)) {}

ChatTemplate ChatTemplate::from_text(std::string_view jinja, std::string bos, std::string eos) {
  ChatTemplate result;
  if (jinja.empty()) return result;
  try {
    result = ChatTemplate(jinja, bos, eos);
    result.name_ = nearest_of(result, bos, eos);
  } catch (const UserError& error) {
    result.problem_ = error.what();
    result.name_ = "unknown";
  }
  result.hash_ = sha256(jinja);
  return result;
}

ChatTemplate ChatTemplate::named(std::string_view name, std::string bos, std::string eos) {
  for (const NamedTemplate& known : named_templates()) {
    if (known.name != name) continue;
    ChatTemplate result(known.jinja, std::move(bos), std::move(eos));
    result.name_ = name;
    result.hash_ = sha256(fmt::format("kvarena:{}", name));
    return result;
  }
  fail({.place = "chat_template",
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(names(), ", ")),
        .nearest = nearest_name(name, names())});
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const NamedTemplate& known : named_templates()) all.emplace_back(known.name);
  return all;
}

ChatTemplate ChatTemplate::with(const jinja::Names& variables) const {
  ChatTemplate result = *this;
  result.variables_.insert(result.variables_.end(), variables.begin(), variables.end());
  return result;
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  jinja::List list;
  for (const ChatMessage& message : messages) {
    list.emplace_back(jinja::Dict{{"role", message.role}, {"content", message.content}});
  }
  return render(jinja::Value(std::move(list)), add_generation_prompt);
}

std::string ChatTemplate::render(const jinja::Value& messages, bool add_generation_prompt) const {
  if (!messages.truth()) fail({.place = "messages", .found = "none", .expected = "at least one"});
  if (!program_) {
    fail({.place = "chat template",
          .found = problem_.empty() ? "none in the checkpoint"
                                    : fmt::format("a text (SHA-256 {}) that is not understood: {}", hash_, problem_),
          .action = fmt::format("choose one with \"template\" beside the model's name: {}", fmt::join(names(), ", "))});
  }
  jinja::Names names = variables_;
  names.emplace_back("messages", messages);
  names.emplace_back("add_generation_prompt", add_generation_prompt);
  return program_->render(names);
}

}  // namespace kvarena
