// Rendering of each family of templates. Golden texts: the Jinja programs themselves, run by transformers.

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/model/chat_template.h"

namespace kvarena {
namespace {

/// ASCII characters that Python's and Jinja's strip remove by default.
constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

std::string_view strip_left(std::string_view text, std::string_view what) {
  const size_t begin = text.find_first_not_of(what);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view strip_right(std::string_view text, std::string_view what) {
  return text.substr(0, text.find_last_not_of(what) + 1);
}

std::string_view strip(std::string_view text, std::string_view what = kWhiteSpace) {
  return strip_right(strip_left(text, what), what);
}

/// Takes a system message off the front, for the words of a user's message to follow: its text and an empty line. ""
/// where there is none.
std::string take_system(std::span<const ChatMessage>& messages) {
  if (messages[0].role != "system") return "";
  std::string system = messages[0].content + "\n\n";
  messages = messages.subspan(1);
  return system;
}

/// text.split(separator)[-1]
std::string_view after_last(std::string_view text, std::string_view separator) {
  const size_t at = text.rfind(separator);
  return at == std::string_view::npos ? text : text.substr(at + separator.size());
}

/// text.split(separator)[0]
std::string_view before_first(std::string_view text, std::string_view separator) {
  return text.substr(0, text.find(separator));
}

constexpr std::string_view kThinkEnd = "</think>";

struct Answer {
  std::string_view reasoning;
  std::string_view content;
};

/// Qwen3's rule: what stands in <think> ... </think> apart from what follows.
Answer split_reasoning(std::string_view text) {
  if (text.find(kThinkEnd) == std::string_view::npos) return {{}, text};
  const std::string_view before = strip_right(before_first(text, kThinkEnd), "\n");
  return {strip_left(after_last(before, "<think>"), "\n"), strip_left(after_last(text, kThinkEnd), "\n")};
}

/// The last message that the user himself wrote: answers after it keep their reasoning (Qwen3).
size_t last_query(std::span<const ChatMessage> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    const bool response = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !response) return i;
  }
  return messages.size() - 1;
}

}  // namespace

void ChatTemplate::fail_role(size_t index, const ChatMessage& message, std::string_view expected) const {
  fail({.place = fmt::format("messages[{}].role", index),
        .found = fmt::format("\"{}\"", message.role),
        .expected = fmt::format("{} for the chat template {}", expected, name_)});
}

bool ChatTemplate::is_users_turn(std::span<const ChatMessage> messages, size_t index) const {
  const bool user = index % 2 == 0;
  if (messages[index].role != (user ? "user" : "assistant")) {
    fail_role(index, messages[index], "user and assistant in turn");
  }
  return user;
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  if (messages.empty()) fail({.place = "messages", .found = "none", .expected = "at least one"});
  switch (style_.family) {
    case Family::chatml: return render_chatml(messages, add_generation_prompt);
    case Family::llama2: return render_llama2(messages);
    case Family::llama3: return render_llama3(messages, add_generation_prompt);
    case Family::mistral: return render_mistral(messages);
    case Family::mistral_v7: return render_mistral_v7(messages);
    case Family::deepseek: return render_deepseek(messages, add_generation_prompt);
    case Family::deepseek_v2: return render_deepseek_v2(messages, add_generation_prompt);
    case Family::gemma3: return render_gemma3(messages, add_generation_prompt);
    case Family::plain: {
      std::string out;
      for (const ChatMessage& message : messages) out += (out.empty() ? "" : "\n\n") + message.content;
      return out;
    }
    case Family::none:
    case Family::unknown: break;
  }
  fail({.place = "chat template",
        .found = style_.family == Family::none ? "none in the checkpoint"
                                               : fmt::format("a text (SHA-256 {}) of no known family", hash_),
        .action = fmt::format("choose one with \"template\" beside the model's name: {}", fmt::join(names(), ", "))});
}

std::string ChatTemplate::render_chatml(std::span<const ChatMessage> messages, bool prompt) const {
  std::string out;
  const auto turn = [&](std::string_view role, std::string_view content) {
    out += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  if (messages[0].role != "system" && !style_.default_system.empty()) turn("system", style_.default_system);
  const size_t query = last_query(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "tool" && style_.tool_responses) {
      if (i == 0 || messages[i - 1].role != "tool") out += "<|im_start|>user";
      out += fmt::format("\n<tool_response>\n{}\n</tool_response>", message.content);
      if (i + 1 == messages.size() || messages[i + 1].role != "tool") out += "<|im_end|>\n";
    } else if (message.role == "assistant" && style_.think) {
      const Answer answer = split_reasoning(message.content);
      if (i > query && (i + 1 == messages.size() || !answer.reasoning.empty())) {
        turn("assistant", fmt::format("<think>\n{}\n</think>\n\n{}", strip(answer.reasoning, "\n"),
                                      strip_left(answer.content, "\n")));
      } else {
        turn("assistant", answer.content);
      }
    } else {
      turn(message.role, message.content);
    }
  }
  if (prompt) out += "<|im_start|>assistant\n" + style_.think_prompt;
  return out;
}

std::string ChatTemplate::render_llama2(std::span<const ChatMessage> messages) const {
  std::string system;
  if (messages[0].role == "system") {
    system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", messages[0].content);
    messages = messages.subspan(1);
  }
  std::string out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool user = is_users_turn(messages, i);
    if (user) {
      const std::string content = (i == 0 ? system : "") + messages[i].content;
      out += fmt::format("{}[INST] {} [/INST]", bos_, strip(content));
    } else {
      out += fmt::format(" {} {}", strip(messages[i].content), eos_);
    }
  }
  return out;
}

std::string ChatTemplate::render_llama3(std::span<const ChatMessage> messages, bool prompt) const {
  std::string out = bos_;
  const auto turn = [&](std::string_view role, std::string_view before, std::string_view content) {
    out += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}{}<|eot_id|>", role, before, strip(content));
  };
  if (style_.dates) {
    // The template's own date where the caller names none: a run must not depend on the day.
    constexpr std::string_view kDates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
    const bool system = messages[0].role == "system";
    turn("system", kDates, system ? messages[0].content : "");
    if (system) messages = messages.subspan(1);
  }
  for (const ChatMessage& message : messages) turn(message.role, "", message.content);
  if (prompt || style_.always_generation_prompt) out += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return out;
}

std::string ChatTemplate::render_mistral(std::span<const ChatMessage> messages) const {
  const std::string system = style_.system_in_last_user ? take_system(messages) : "";
  std::string out = bos_;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool user = is_users_turn(messages, i);
    if (user) {
      const bool last = i + 1 == messages.size();
      out += fmt::format("[INST] {}{}{}", last ? system : "", messages[i].content, style_.inst_close);
    } else {
      const std::string_view content = style_.trim_answer ? strip(messages[i].content) : messages[i].content;
      out += fmt::format("{}{}{}{}", style_.answer_open, content, eos_, style_.answer_close);
    }
  }
  return out;
}

std::string ChatTemplate::render_mistral_v7(std::span<const ChatMessage> messages) const {
  if (messages[0].role != "system") {
    fail({.place = "messages",
          .found = "no system message",
          .expected = "one: this template's default prompt carries the day's date, which no run should depend on",
          .action = "Begin with a message of role \"system\"."});
  }
  std::string out = fmt::format("{}[SYSTEM_PROMPT]{}[/SYSTEM_PROMPT]", bos_, messages[0].content);
  for (size_t i = 1; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "user") {
      out += fmt::format("[INST]{}[/INST]", message.content);
    } else if (message.role == "system") {
      out += fmt::format("[SYSTEM_PROMPT]{}[/SYSTEM_PROMPT]", message.content);
    } else if (message.role == "assistant") {
      out += message.content + eos_;
    } else {
      fail_role(i, message, "system, user or assistant");
    }
  }
  return out;
}

std::string ChatTemplate::render_deepseek(std::span<const ChatMessage> messages, bool prompt) const {
  std::string system;  // v3 joins all system messages, r1 takes the last
  for (const ChatMessage& message : messages) {
    if (message.role != "system") continue;
    if (style_.think) system.clear();
    system += (system.empty() ? "" : "\n\n") + message.content;
  }
  std::string out = bos_ + system;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "user") {
      out += "<｜User｜>" + message.content;
    } else if (message.role == "assistant") {
      const std::string_view content = style_.think ? after_last(message.content, kThinkEnd) : message.content;
      out += fmt::format("<｜Assistant｜>{}<｜end▁of▁sentence｜>", content);
    } else if (message.role != "system") {
      fail_role(i, message, "system, user or assistant");
    }
  }
  if (prompt) out += "<｜Assistant｜>" + style_.think_prompt;
  return out;
}

std::string ChatTemplate::render_deepseek_v2(std::span<const ChatMessage> messages, bool prompt) const {
  std::string out = bos_;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "user") {
      out += fmt::format("User: {}\n\n", message.content);
    } else if (message.role == "assistant") {
      out += fmt::format("Assistant: {}{}", message.content, eos_);
    } else if (message.role == "system") {
      out += message.content + "\n\n";
    } else {
      fail_role(i, message, "system, user or assistant");
    }
  }
  if (prompt) out += "Assistant:";
  return out;
}

std::string ChatTemplate::render_gemma3(std::span<const ChatMessage> messages, bool prompt) const {
  const std::string system = take_system(messages);  // stands before the first user's words
  std::string out = bos_;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool user = is_users_turn(messages, i);
    out += fmt::format("<start_of_turn>{}\n{}{}<end_of_turn>\n", user ? "user" : "model", i == 0 ? system : "",
                       strip(messages[i].content));
  }
  if (prompt) out += "<start_of_turn>model\n";
  return out;
}

}  // namespace kvarena
