#pragma once
// Rendering of prompt templates as Python's str.format does it for these benchmarks.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvarena::datasets {

/// Ends a problem in a chat with a model that reasons, as DeepSeek-R1's and Qwen2.5-Math's authors ask.
inline constexpr std::string_view kBoxedAnswer =
    "\nPlease reason step by step, and put your final answer within \\boxed{}.";

/// A template's place-holder and what stands for it.
struct Slot {
  std::string_view name;  // "context" for {context}
  std::string_view value;
};

/// A rendered template and where one of its slots, or a piece of its text, begins.
struct Rendered {
  std::string text;
  size_t question = 0;  // byte where the question part begins
};

/// Replaces each `{name}` of a slot once over, in one pass, so that braces inside values stay as they are; all other
/// braces of the template stay too. The question begins right after the value of the slot `context` (its last
/// occurrence); without that slot it is 0.
[[nodiscard]] Rendered render(std::string_view text, const std::vector<Slot>& slots,
                              std::string_view context = "context");

/// str.strip() of ASCII white space, the only one at the ends of these files' texts.
[[nodiscard]] std::string strip(std::string_view text);

}  // namespace kvarena::datasets
