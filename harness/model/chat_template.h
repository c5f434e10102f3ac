#pragma once
// Conversations as the text a model was trained to continue: the Jinja program of its checkpoint, or one chosen by
// name.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/model/jinja/program.h"

namespace kvarena {

struct ChatMessage {
  std::string role;  // system, user, assistant; tool where the template has it
  std::string content;
};

/// Marks of a model around its thinking.
struct ThinkingMarks {
  std::string_view open;
  std::string_view close;
};

class ChatTemplate {
 public:
  /// No template: render() refuses.
  ChatTemplate() = default;

  /// The Jinja text of a checkpoint, empty when it has none. `bos` and `eos` are the texts of these tokens. A text that
  /// is not understood is refused by render() alone, since many workloads need no template.
  [[nodiscard]] static ChatTemplate from_text(std::string_view jinja, std::string bos, std::string eos);

  /// One of names(). Throws UserError with the nearest name.
  [[nodiscard]] static ChatTemplate named(std::string_view name, std::string bos, std::string eos);

  /// smollm2, qwen2, qwen2.5, qwen3, chatml, llama2, llama3, llama3.1, mistral, mistral_v3, mistral_v7, deepseek_v2,
  /// deepseek_v3, deepseek_r1, gemma3, vicuna, plain.
  [[nodiscard]] static std::vector<std::string> names();

  /// A copy whose program is given more names: "enable_thinking", "tools", "documents".
  [[nodiscard]] ChatTemplate with(const jinja::Names& variables) const;

  /// The whole conversation, special tokens written out (bos too where the template writes it): encode it with
  /// add_special = false. `add_generation_prompt`: ends with the beginning of the assistant's answer.
  /// Throws UserError when there is no template, it is not understood, or it refuses the conversation.
  [[nodiscard]] std::string render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  /// Messages as an API has them, a list of dicts, with all that their template may read beside role and content.
  [[nodiscard]] std::string render(const jinja::Value& messages, bool add_generation_prompt) const;

  /// The name of names() whose program writes the same in a few conversations, "custom" where none does, "unknown" for
  /// a text that is not understood, "none".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// SHA-256 of the Jinja text, or of "kvarena:" and the name when it was chosen by name; empty for none. Part of the
  /// protocol card.
  [[nodiscard]] const std::string& hash() const { return hash_; }

  /// Marks around the model's thinking; absent where its template knows none.
  [[nodiscard]] const std::optional<ThinkingMarks>& thinking() const { return thinking_; }

 private:
  ChatTemplate(std::string_view jinja, std::string bos, std::string eos);

  std::optional<jinja::Program> program_;
  std::string problem_;     // of a text that is not understood
  jinja::Names variables_;  // names that the program is given beside the messages
  std::optional<ThinkingMarks> thinking_;
  std::string name_ = "none";
  std::string hash_;
};

}  // namespace kvarena
