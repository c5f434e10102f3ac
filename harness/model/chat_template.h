#pragma once
// Conversations as the text a model was trained to continue.
//
// Checkpoints carry their template as a Jinja program. The families in use are few; a program is recognised by what
// it writes and rendered by code here, equal to the program's own output (tests/golden/model_chat.py). What is not
// recognised is refused with a word on how to choose a template by name.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena {

struct ChatMessage {
  std::string role;  // system, user, assistant; tool where the template has it
  std::string content;
};

class ChatTemplate {
 public:
  /// No template: render() refuses.
  ChatTemplate() = default;

  /// Recognises the Jinja text of a checkpoint, empty when it has none. `bos` and `eos` are the texts of these tokens.
  [[nodiscard]] static ChatTemplate from_text(std::string_view jinja, std::string bos, std::string eos);

  /// One of names(). Throws UserError with the nearest name.
  [[nodiscard]] static ChatTemplate named(std::string_view name, std::string bos, std::string eos);

  /// smollm2, qwen2, qwen2.5, qwen3, chatml, llama2, llama3, llama3.1, mistral, mistral_v3, mistral_v7, deepseek_v2,
  /// deepseek_v3, deepseek_r1, gemma3, plain.
  [[nodiscard]] static std::vector<std::string> names();

  /// The whole conversation, special tokens written out (bos too where the template writes it): encode it with
  /// add_special = false. `add_generation_prompt`: ends with the beginning of the assistant's answer.
  /// Throws UserError when there is no template, it is unknown, or a role does not fit it.
  [[nodiscard]] std::string render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  /// Name of the family's variant: one of names(), "custom" for a family member with its own default prompt, "unknown"
  /// for a text that is not recognised, "none".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// SHA-256 of the Jinja text, or of "kvarena:" and the name when it was chosen by name; empty for none. Part of the
  /// protocol card.
  [[nodiscard]] const std::string& hash() const { return hash_; }

  /// The system message used when the conversation has none; may be empty.
  [[nodiscard]] const std::string& default_system() const { return style_.default_system; }

 private:
  enum class Family : uint8_t {
    none,
    unknown,
    chatml,
    llama2,
    llama3,
    mistral,
    mistral_v7,
    deepseek,
    deepseek_v2,
    gemma3,
    plain
  };

  /// Differences between the variants of a family.
  struct Style {
    Family family = Family::none;
    std::string default_system;
    bool always_generation_prompt = false;  // Llama 3's first template ignores the flag
    bool think = false;                     // chatml, deepseek: earlier answers lose their reasoning
    std::string think_prompt;               // added by the generation prompt after the role
    bool tool_responses = false;            // chatml: tool messages are user turns with <tool_response>
    bool dates = false;                     // llama3: a system header with the knowledge date
    bool system_in_last_user = false;       // mistral v3
    std::string inst_close = " [/INST]";    // mistral
    std::string answer_open;                // mistral: before an answer
    std::string answer_close;               // mistral: after eos
    bool trim_answer = false;               // mistral
    bool operator==(const Style&) const = default;
  };
  struct Variant {
    std::string_view name;
    Style style;
  };
  static const std::vector<Variant>& variants();
  static Style recognize(std::string_view jinja);

  [[nodiscard]] std::string render_chatml(std::span<const ChatMessage> messages, bool prompt) const;
  [[nodiscard]] std::string render_llama2(std::span<const ChatMessage> messages) const;
  [[nodiscard]] std::string render_llama3(std::span<const ChatMessage> messages, bool prompt) const;
  [[nodiscard]] std::string render_mistral(std::span<const ChatMessage> messages) const;
  [[nodiscard]] std::string render_mistral_v7(std::span<const ChatMessage> messages) const;
  [[nodiscard]] std::string render_deepseek(std::span<const ChatMessage> messages, bool prompt) const;
  [[nodiscard]] std::string render_deepseek_v2(std::span<const ChatMessage> messages, bool prompt) const;
  [[nodiscard]] std::string render_gemma3(std::span<const ChatMessage> messages, bool prompt) const;
  /// Whether message `index` is the user's, of families where user and assistant speak in turn. Throws UserError where
  /// they do not.
  [[nodiscard]] bool is_users_turn(std::span<const ChatMessage> messages, size_t index) const;
  [[noreturn]] void fail_role(size_t index, const ChatMessage& message, std::string_view expected) const;

  Style style_;
  std::string name_ = "none";
  std::string hash_;
  std::string bos_;
  std::string eos_;
};

}  // namespace kvarena
