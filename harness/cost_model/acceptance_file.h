#pragma once
// Acceptance curves read from a file, for several shares of the cache that a drafter keeps:
//
//   {"source": "...", "curves": [{"keep": 0.25, "drafter": "SnapKV", "points": [{"draft_length": 10, "rate": 0.93},
//   ...]},
//                                {"keep": 0.1, "independent": 0.97, "max_draft_length": 64}]}

#include <filesystem>
#include <string>
#include <vector>

#include "harness/cost_model/acceptance.h"
#include "harness/cost_model/staggered_decoding.h"

namespace kvarena::cost_model {

struct AcceptanceFile {
  struct Curve {
    double keep = 0;      // bytes of the drafter's cache over full KV's
    std::string drafter;  // empty where the file names none
    AcceptanceCurve acceptance;
  };
  std::string source;
  std::vector<Curve> curves;

  /// Every share kept with every draft length that its curve reaches.
  [[nodiscard]] DecodingChoices choices() const;
  /// The curve of the share kept that accepts most at a draft length; null where none reaches so far.
  [[nodiscard]] const Curve* best(int64_t draft_length, double kept) const;
};

/// Throws UserError with file and key.
[[nodiscard]] AcceptanceFile read_acceptance(const std::filesystem::path& file);
[[nodiscard]] AcceptanceFile parse_acceptance(const std::string& text, const std::string& place);

}  // namespace kvarena::cost_model
