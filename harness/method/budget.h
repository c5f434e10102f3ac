#pragma once
// A budget is a fraction kept, a count of entries, or bytes; never a bare ratio (papers mean three things by it).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/cache/segment.h"
#include "harness/core/parameters.h"
#include "harness/method/selection.h"

namespace kvarena {

struct Budget {
  std::optional<double> keep;     // fraction of the prompt's entries, in (0, 1]
  std::optional<int64_t> tokens;  // entries a head
  std::optional<int64_t> bytes;   // of all layers that the method acts on, entries and their positions

  void parameters(ParameterVisitor& p);
  /// Exactly one of the three must be given.
  void check(const std::string& place, std::vector<std::string>& problems) const;

  /// Entries a head may hold on average for a prompt of `prompt_tokens`, before rounding: keep * prompt_tokens for a
  /// fraction. It is fixed by the prompt: decoding does not raise it.
  [[nodiscard]] double share(int64_t prompt_tokens, const LayerShape& shape, int64_t layers) const;
  /// floor(share + 1e-9), at least 1; may exceed the prompt.
  [[nodiscard]] int64_t capacity(int64_t prompt_tokens, const LayerShape& shape, int64_t layers) const;
  /// Whether keep = 1, which keeps everything for ever, also while decoding.
  [[nodiscard]] bool unlimited() const { return keep && *keep >= 1.0; }
};

/// Entries that the user protects within the budget, so that methods can be compared under one protection.
struct UserProtection {
  int64_t sinks = 0;
  int64_t window = 0;

  void parameters(ParameterVisitor& p);
  /// Protects what a method does by itself, or more where the user asks for more.
  [[nodiscard]] Protection beside(Protection own) const;
};

}  // namespace kvarena
