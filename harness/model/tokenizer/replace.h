#pragma once
// Replacements that a tokenizer's file asks for, of which a few can make a short text too long for any memory.

#include <cstddef>
#include <string>
#include <string_view>

namespace kvarena {

/// Bounds of a text while replacements change it.
struct TextBounds {
  const char* component;  // of the file, for messages: "normalizer"
  size_t bytes;

  /// Throws UserError when the text exceeds them.
  void check(const std::string& text) const;
};

/// Replaces each `from` in `text`, from its start on; an empty one is nowhere. Throws UserError when the text exceeds
/// the bounds.
void replace_all(std::string& text, std::string_view from, std::string_view to, const TextBounds& bounds);

}  // namespace kvarena
