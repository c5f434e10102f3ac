#pragma once
// Texts as Python makes them, of which official prompts are made.

#include <string>
#include <string_view>

#include "datasets/records.h"

namespace kvarena::datasets {

/// str(value), of a string, a number, a truth value, null or a list of these.
[[nodiscard]] std::string python_text(const Row& value);

/// json.dumps(value), of values without fractions.
[[nodiscard]] std::string python_json(const Row& value);

/// text.strip(), of white space of any script; a part of `text`.
[[nodiscard]] std::string_view python_strip(std::string_view text);

/// text.replace(from, to); `from` is not empty.
[[nodiscard]] std::string replace_all(std::string text, std::string_view from, std::string_view to);

}  // namespace kvarena::datasets
