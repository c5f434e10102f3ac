#include "harness/model/chat_templates.h"

#include <fmt/format.h>

#include <vector>

namespace kvarena {
namespace {

/// Fails where user and assistant do not speak in turn.
constexpr std::string_view kInTurn =
    R"({% for m in turns %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %})"
    R"({{ raise_exception('a turn of role "' ~ m.role ~ '" where user and assistant speak in turn') }})"
    R"({% endif %}{% endfor %})";

/// Takes a system message off the front: `system` is its text or empty, `turns` what follows.
constexpr std::string_view kTakeSystem =
    R"({% set system = messages[0].content if messages[0].role == 'system' else '' %})"
    R"({% set turns = messages[1:] if messages[0].role == 'system' else messages %})";

constexpr std::string_view kRoles =
    R"({% for m in messages if m.role not in ['system', 'user', 'assistant'] %})"
    R"({{ raise_exception('role "' ~ m.role ~ '", none of system, user and assistant') }}{% endfor %})";

constexpr std::string_view kChatmlPrompt = R"({% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";

constexpr std::string_view kChatml = R"({% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %})";

/// Answers of tools are turns of the user.
constexpr std::string_view kToolResponse =
    R"({% if loop.first or loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}

<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>
{% endif %})";

std::string default_system(std::string_view text) {
  return fmt::format(R"({{% if messages[0].role != 'system' %}}<|im_start|>system
{}<|im_end|>
{{% endif %}})",
                     text);
}

std::string chatml(std::string_view system) {
  return fmt::format("{}{}{}", system.empty() ? "" : default_system(system), kChatml, kChatmlPrompt);
}

std::string qwen25() {
  return fmt::format(
      "{}{{% for m in messages %}}{{% if m.role == 'tool' %}}{}{{% else %}}{}{{% endif %}}{{% endfor %}}{}",
      default_system("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), kToolResponse,
      R"(<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
)",
      kChatmlPrompt);
}

/// Thinking stays in answers after the last words that the user himself wrote.
std::string qwen3() {
  constexpr std::string_view kLastQuery =
      R"({% set ns = namespace(last=messages|length - 1) %})"
      R"({% for m in messages %}{% if m.role == 'user' and not )"
      R"((m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %})"
      R"({% set ns.last = loop.index0 %}{% endif %}{% endfor %})";
  constexpr std::string_view kAnswer =
      R"({% set content = m.content.split('</think>')[-1].lstrip('\n') if '</think>' in m.content else m.content %})"
      R"({% set thought = m.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') )"
      R"(if '</think>' in m.content else '' %})"
      R"(<|im_start|>assistant
{% if loop.index0 > ns.last and (loop.last or thought) %}<think>
{{ thought.strip('\n') }}
</think>

{{ content.lstrip('\n') }}{% else %}{{ content }}{% endif %}<|im_end|>
)";
  constexpr std::string_view kOther = R"(<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
)";
  return fmt::format(
      "{}{{% for m in messages %}}{{% if m.role == 'tool' %}}{}{{% elif m.role == 'assistant' %}}{}{{% else %}}{}"
      "{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>assistant\n"
      "{{% if enable_thinking is defined and not enable_thinking %}}<think>\n\n</think>\n\n{{% endif %}}{{% endif %}}",
      kLastQuery, kToolResponse, kAnswer, kOther);
}

std::string llama2() {
  return fmt::format("{}{}{}", kTakeSystem, kInTurn,
                     R"({% if system %}{% set system = '<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' %}{% endif %})"
                     R"({% for m in turns %}{% if m.role == 'user' %}{{ bos_token }}[INST] )"
                     R"({{ ((system if loop.first else '') ~ m.content).strip() }} [/INST])"
                     R"({% else %} {{ m.content.strip() }} {{ eos_token }}{% endif %}{% endfor %})");
}

constexpr std::string_view kLlama3Turns = R"({% for m in turns %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %})";

std::string llama3() { return fmt::format("{{{{ bos_token }}}}{{% set turns = messages %}}{}", kLlama3Turns); }

/// The date is the one that the published template falls back to: a run must not depend on the day.
std::string llama31() {
  return fmt::format("{{{{ bos_token }}}}{}{}{}", kTakeSystem, R"(<|start_header_id|>system<|end_header_id|>

Cutting Knowledge Date: December 2023
Today Date: 26 Jul 2024

{{ system | trim }}<|eot_id|>)",
                     kLlama3Turns);
}

std::string mistral() {
  return fmt::format("{{% set turns = messages %}}{}{}", kInTurn,
                     R"({{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST])"
                     R"({% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %})");
}

std::string mistral_v3() {
  return fmt::format("{}{}{}", kTakeSystem, kInTurn,
                     R"({{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}[INST] )"
                     R"({{ system ~ '\n\n' if system and loop.last else '' }}{{ m.content }}[/INST])"
                     R"({% else %} {{ m.content.strip() }}{{ eos_token }}{% endif %}{% endfor %})");
}

std::string mistral_v7() {
  return fmt::format(
      "{}{}", kRoles,
      R"({% if messages[0].role != 'system' %}{{ raise_exception('no system message: the default prompt )"
      R"(carries the date of the day, which no run should depend on') }}{% endif %})"
      R"({{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST])"
      R"({% elif m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT])"
      R"({% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %})");
}

constexpr std::string_view kDeepseekTurns =
    R"({{ bos_token }}{{ system }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }})"
    R"({% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content.split('</think>')[-1] if thinks else m.content }})"
    R"(<｜end▁of▁sentence｜>{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>)"
    R"({{ '<think>\n' if thinks else '' }}{% endif %})";

std::string deepseek_v3() {
  return fmt::format("{}{}{}", kRoles,
                     R"({% set thinks = false %}{% set system = messages | selectattr('role', 'equalto', 'system') | )"
                     R"(map(attribute='content') | join('\n\n') %})",
                     kDeepseekTurns);
}

std::string deepseek_r1() {
  return fmt::format("{}{}{}", kRoles,
                     R"({% set thinks = true %}{% set system = messages | selectattr('role', 'equalto', 'system') | )"
                     R"(map(attribute='content') | list | last | default('') %})",
                     kDeepseekTurns);
}

std::string deepseek_v2() {
  return fmt::format("{}{}", kRoles,
                     R"({{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}User: {{ m.content }}

{% elif m.role == 'assistant' %}Assistant: {{ m.content }}{{ eos_token }}{% else %}{{ m.content }}

{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %})");
}

std::string gemma3() {
  return fmt::format("{}{}{}", kTakeSystem, kInTurn,
                     R"({{ bos_token }}{% for m in turns %}<start_of_turn>{{ 'user' if m.role == 'user' else 'model' }}
{{ system ~ '\n\n' if system and loop.first else '' }}{{ m.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %})");
}

/// Vicuna 1.1, which LongChat was trained on.
std::string vicuna() {
  constexpr std::string_view kSystem =
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
      "and polite answers to the user's questions.";
  return fmt::format("{}{}{{{{ bos_token }}}}{{{{ system if system else \"{}\" }}}} {}", kTakeSystem, kInTurn, kSystem,
                     R"({% for m in turns %}{% if m.role == 'user' %}USER: {{ m.content }} )"
                     R"({% else %}ASSISTANT: {{ m.content }}{{ eos_token }}{% endif %}{% endfor %})"
                     R"({% if add_generation_prompt %}ASSISTANT:{% endif %})");
}

}  // namespace

std::span<const NamedTemplate> named_templates() {
  static const std::vector<NamedTemplate> all = {
      {"smollm2", chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face")},
      {"qwen2", chatml("You are a helpful assistant.")},
      {"qwen2.5", qwen25()},
      {"qwen3", qwen3()},
      {"chatml", chatml("")},
      {"llama2", llama2()},
      {"llama3", llama3()},
      {"llama3.1", llama31()},
      {"mistral", mistral()},
      {"mistral_v3", mistral_v3()},
      {"mistral_v7", mistral_v7()},
      {"deepseek_v2", deepseek_v2()},
      {"deepseek_v3", deepseek_v3()},
      {"deepseek_r1", deepseek_r1()},
      {"gemma3", gemma3()},
      {"vicuna", vicuna()},
      {"plain", "{{ messages | map(attribute='content') | join('\\n\\n') }}"},
  };
  return all;
}

}  // namespace kvarena
