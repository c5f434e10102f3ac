#pragma once
// Acceptance curves read from a file, for several shares of the cache that a drafter keeps:
//
//   {"source": "...", "curves": [{"keep": 0.25, "points": [{"draft_length": 10, "rate": 0.93}, ...]},
//                                {"keep": 0.1, "independent": 0.97, "max_draft_length": 64}]}

#include <filesystem>
#include <string>
#include <vector>

#include "harness/cost_model/acceptance.h"
#include "harness/cost_model/staggered_decoding.h"

namespace kvarena::cost_model {

struct AcceptanceFile {
  struct Curve {
    double keep = 0;
    AcceptanceCurve acceptance;
  };
  std::string source;
  std::vector<Curve> curves;

  /// Every share kept with every draft length that its curve reaches.
  [[nodiscard]] DecodingChoices choices() const;
  /// gamma(draft_length, kept); 0 beyond a curve's end, so that no plan goes there.
  [[nodiscard]] double rate(int64_t draft_length, double kept) const;
};

/// Throws UserError with file and key.
[[nodiscard]] AcceptanceFile read_acceptance(const std::filesystem::path& file);
[[nodiscard]] AcceptanceFile parse_acceptance(const std::string& text, const std::string& place);

}  // namespace kvarena::cost_model
