#pragma once
// The thirteen generators of RULER (NVIDIA/RULER @c3f5e3b4, scripts/data/synthetic; section 7 of the workload sheet).
// Each makes a row for a given amount of hay; the workload looks for the amount that fits the wanted length.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "datasets/draw.h"

namespace kvarena::datasets {

/// A row as the official scripts write it.
struct RulerRow {
  std::string input;
  std::string answer_prefix;
  std::vector<std::string> outputs;
  size_t question = 0;  // byte of input where the question begins
};

/// One of the thirteen tasks.
struct RulerTask {
  const char* name;
  const char* title;
  int64_t max_new_tokens;
  bool all;      // scored by string_match_all, else string_match_part
  int64_t step;  // hay is measured in steps of this many units (sentences, words, documents)
  RulerRow (*make)(const RulerTask& task, Draw& draw, int64_t hay);
  // Needle tasks only.
  char haystack = 0;  // 'n' noise sentences, 'e' essay, 'k' other needles
  bool uuid_keys = false;
  bool uuid_values = false;
  int keys = 1;
  int values = 1;
  int queries = 1;
  // Questions about one context, each for other keys, and which of them is asked.
  int questions = 1;
  int question = 0;
};

/// All thirteen, in the official order.
[[nodiscard]] std::span<const RulerTask> ruler_tasks();

}  // namespace kvarena::datasets
