#pragma once
// LongBench v2: four-choice questions.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvarena::metrics {

/// The letter the answer commits to: asterisks removed, the first "The correct answer is (X)", else the first
/// "The correct answer is X". Case-sensitive.
[[nodiscard]] std::optional<char> longbench_v2_answer(std::string_view prediction);

struct LongBenchV2Item {
  bool right = false;
  std::string difficulty;  ///< easy, hard
  std::string length;      ///< short, medium, long
};

/// Per cent right, rounded to one decimal: "overall", "easy", "hard", "short", "medium", "long"; groups without items
/// are left out.
[[nodiscard]] std::map<std::string, double> longbench_v2_table(std::span<const LongBenchV2Item> items);

}  // namespace kvarena::metrics
