// Recognition and names of templates. Rendering is in chat_template_render.cpp.

#include "harness/model/chat_template.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The system prompt that a chatml program writes when there is none: a string literal
/// '<|im_start|>system\nPROMPT<|im_end|>'. Line breaks are real or written as \n.
std::string default_chatml_system(std::string_view jinja) {
  constexpr std::string_view kOpen = "<|im_start|>system";
  constexpr std::string_view kClose = "<|im_end|>";
  for (size_t at = jinja.find(kOpen); at != std::string_view::npos; at = jinja.find(kOpen, at + 1)) {
    std::string_view rest = jinja.substr(at + kOpen.size());
    if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('\n')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    const std::string_view prompt = rest.substr(0, rest.find(kClose));
    if (prompt.size() < rest.size() && !prompt.empty() && !has(prompt, "'") && !has(prompt, "\"")) {
      return std::string(prompt);
    }
  }
  return {};
}

constexpr std::string_view kSmolLm = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr std::string_view kQwen2 = "You are a helpful assistant.";
constexpr std::string_view kQwen25 = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

}  // namespace

const std::vector<ChatTemplate::Variant>& ChatTemplate::variants() {
  static const std::vector<Variant> all = {
      {"smollm2", {.family = Family::chatml, .default_system = std::string(kSmolLm)}},
      {"qwen2", {.family = Family::chatml, .default_system = std::string(kQwen2)}},
      {"qwen2.5", {.family = Family::chatml, .default_system = std::string(kQwen25), .tool_responses = true}},
      {"qwen3", {.family = Family::chatml, .think = true, .tool_responses = true}},
      {"chatml", {.family = Family::chatml}},
      {"llama2", {.family = Family::llama2}},
      {"llama3", {.family = Family::llama3}},
      {"llama3.1", {.family = Family::llama3, .dates = true}},
      {"mistral", {.family = Family::mistral}},
      {"mistral_v3",
       {.family = Family::mistral,
        .system_in_last_user = true,
        .inst_close = "[/INST]",
        .answer_open = " ",
        .trim_answer = true}},
      {"mistral_v7", {.family = Family::mistral_v7}},
      {"deepseek_v2", {.family = Family::deepseek_v2}},
      {"deepseek_v3", {.family = Family::deepseek}},
      {"deepseek_r1", {.family = Family::deepseek, .think = true, .think_prompt = "<think>\n"}},
      {"gemma3", {.family = Family::gemma3}},
      {"plain", {.family = Family::plain}},
  };
  return all;
}

ChatTemplate::Style ChatTemplate::recognize(std::string_view jinja) {
  Style style;
  if (has(jinja, "<|im_start|>")) {
    style.family = Family::chatml;
    style.default_system = default_chatml_system(jinja);
    style.think = has(jinja, "</think>");
    style.tool_responses = has(jinja, "<tool_response>");
  } else if (has(jinja, "<|start_header_id|>")) {
    style.family = Family::llama3;
    style.dates = has(jinja, "Cutting Knowledge Date");
    style.always_generation_prompt = !has(jinja, "add_generation_prompt");
  } else if (has(jinja, "[SYSTEM_PROMPT]")) {
    style.family = Family::mistral_v7;
  } else if (has(jinja, "[INST]")) {
    style.family = has(jinja, "<<SYS>>") ? Family::llama2 : Family::mistral;
    if (style.family == Family::mistral) {
      style.inst_close = has(jinja, " [/INST]") ? " [/INST]" : "[/INST]";
      style.system_in_last_user = has(jinja, "system_message");
      style.trim_answer = has(jinja, "| trim") || has(jinja, "|trim");
      const bool opens = has(jinja, "' ' + message") || has(jinja, "\" \" + message");
      style.answer_open = std::string(opens ? 1 : 0, ' ');
      style.answer_close = std::string(has(jinja, "eos_token + ' '") ? 1 : 0, ' ');
    }
  } else if (has(jinja, "<｜User｜>")) {
    style.family = Family::deepseek;
    style.think = has(jinja, "</think>");
    if (has(jinja, "<｜Assistant｜><think>")) style.think_prompt = "<think>\n";
  } else if (has(jinja, "<start_of_turn>") && has(jinja, "first_user_prefix")) {
    style.family = Family::gemma3;
  } else if (has(jinja, "'User: '")) {
    style.family = Family::deepseek_v2;
  } else {
    style.family = jinja.empty() ? Family::none : Family::unknown;
  }
  return style;
}

ChatTemplate ChatTemplate::from_text(std::string_view jinja, std::string bos, std::string eos) {
  ChatTemplate result;
  result.style_ = recognize(jinja);
  result.bos_ = std::move(bos);
  result.eos_ = std::move(eos);
  if (result.style_.family == Family::none) return result;
  result.hash_ = sha256(jinja);
  result.name_ = result.style_.family == Family::unknown ? "unknown" : "custom";
  for (const Variant& variant : variants()) {
    if (variant.style == result.style_) result.name_ = variant.name;
  }
  if (result.style_.always_generation_prompt && !result.style_.dates) result.name_ = "llama3";
  return result;
}

ChatTemplate ChatTemplate::named(std::string_view name, std::string bos, std::string eos) {
  for (const Variant& variant : variants()) {
    if (variant.name != name) continue;
    ChatTemplate result;
    result.style_ = variant.style;
    result.name_ = name;
    result.hash_ = sha256(fmt::format("kvarena:{}", name));
    result.bos_ = std::move(bos);
    result.eos_ = std::move(eos);
    return result;
  }
  fail({.place = "chat_template",
        .found = fmt::format("\"{}\"", name),
        .expected = fmt::format("one of {}", fmt::join(names(), ", ")),
        .nearest = nearest_name(name, names())});
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const Variant& variant : variants()) all.emplace_back(variant.name);
  return all;
}

}  // namespace kvarena
