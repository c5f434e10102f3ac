#pragma once
// Invented things with invented facts: what needles and fact questions are about. Nothing in them can be known from
// elsewhere, so that an answer proves that the context was read.

#include <cstddef>
#include <string>
#include <vector>

#include "datasets/draw.h"

namespace kvarena::datasets {

/// One fact and the question that it answers.
struct Fact {
  std::string sentence;  // "The captain of the ferry Silver Gull is Anna Reed."
  std::string question;  // "Who is the captain of the ferry Silver Gull?"
  std::string answer;    // "Anna Reed"
};

/// A thing, its name and what is known about it.
struct Thing {
  std::string name;  // "ferry Silver Gull"
  std::vector<Fact> facts;
};

/// Most things that one world can have; all are of different kinds.
inline constexpr size_t kMaxThings = 16;

/// `count` (1 .. kMaxThings) things of different kinds with three facts each: a person, an animal or object, and a
/// color or number. No two facts of a world of the same sort have the same answer.
[[nodiscard]] std::vector<Thing> make_world(Draw& draw, size_t count);

/// "Oakford": the name of a town.
[[nodiscard]] std::string town_name(Draw& draw);

/// "silver-lantern": a code that a reader can remember.
[[nodiscard]] std::string code_word(Draw& draw);

}  // namespace kvarena::datasets
