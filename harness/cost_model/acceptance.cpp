#include "harness/cost_model/acceptance.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::cost_model {

AcceptanceCurve AcceptanceCurve::independent(double beta, int64_t max_draft_length) {
  KVARENA_ASSERT(beta >= 0 && beta <= 1 && max_draft_length >= 1, fmt::format("beta={}", beta));
  std::vector<double> accepted{0};
  double survival = 1;
  for (int64_t i = 1; i <= max_draft_length; ++i) {
    survival *= beta;
    accepted.push_back(accepted.back() + survival);
  }
  return AcceptanceCurve(std::move(accepted));
}

AcceptanceCurve AcceptanceCurve::measured(std::vector<AcceptancePoint> points) {
  std::ranges::sort(points, {}, &AcceptancePoint::draft_length);
  std::vector<double> accepted{0};
  for (const AcceptancePoint& point : points) {
    const auto from = static_cast<int64_t>(accepted.size()) - 1;
    if (point.draft_length <= from || !(point.rate >= 0 && point.rate <= 1)) {
      fail({.place = "acceptance",
            .found = fmt::format("rate {} at draft length {}", point.rate, point.draft_length),
            .expected = "draft lengths from 1, each once, with rates between 0 and 1"});
    }
    const double start = accepted.back();
    const double end = point.rate * static_cast<double>(point.draft_length);
    for (int64_t x = from + 1; x <= point.draft_length; ++x) {
      const double share = static_cast<double>(x - from) / static_cast<double>(point.draft_length - from);
      accepted.push_back(start + share * (end - start));
    }
  }
  if (points.empty()) fail({.place = "acceptance", .found = "no points", .expected = "at least one"});
  return AcceptanceCurve(std::move(accepted));
}

AcceptanceCurve AcceptanceCurve::from_rounds(std::span<const SeenRound> rounds, int64_t min_rounds) {
  int64_t longest = 0;
  for (const SeenRound& round : rounds) longest = std::max(longest, round.drafted);
  std::vector<int64_t> reached(longest + 1), passed(longest + 1);
  for (const SeenRound& round : rounds) {
    for (int64_t i = 1; i <= std::min(round.accepted + 1, round.drafted); ++i) ++reached[i];
    for (int64_t i = 1; i <= round.accepted; ++i) ++passed[i];
  }
  std::vector<double> accepted{0};
  double survival = 1;
  for (int64_t i = 1; i <= longest && reached[i] >= std::max<int64_t>(1, min_rounds); ++i) {
    survival *= static_cast<double>(passed[i]) / static_cast<double>(reached[i]);
    accepted.push_back(accepted.back() + survival);
  }
  if (accepted.size() == 1) {
    fail({.place = "acceptance",
          .found = fmt::format("{} rounds, none with {} drafts at one position", rounds.size(), min_rounds),
          .expected = "rounds that drafted something"});
  }
  return AcceptanceCurve(std::move(accepted));
}

double AcceptanceCurve::accepted(int64_t draft_length) const {
  KVARENA_ASSERT(draft_length >= 0 && draft_length <= max_draft_length(),
                 fmt::format("draft length {} of {}", draft_length, max_draft_length()));
  return accepted_[draft_length];
}

double AcceptanceCurve::rate(int64_t draft_length) const {
  KVARENA_ASSERT(draft_length >= 1, fmt::format("draft length {}", draft_length));
  return accepted(draft_length) / static_cast<double>(draft_length);
}

}  // namespace kvarena::cost_model
