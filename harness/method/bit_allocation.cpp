#include "harness/method/bit_allocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace kvarena {
namespace {

/// For every number of components, units spent and width of the last run, the least error.
class Allocation {
 public:
  Allocation(const RunErrors& errors, int64_t budget)
      : errors_(errors), units_(budget / kRunUnit), best_(index(errors.components + kRunAlign, 0, 0)) {
    at(0, 0, 0) = {.error = 0, .size = -1};
    for (int64_t end = 0; end < errors.components; end = next_end(end)) {
      for (int64_t spent = 0; spent <= units_; ++spent) {
        for (size_t width = 0; width <= kRunBits.size(); ++width) extend(end, spent, width);
      }
    }
  }

  [[nodiscard]] std::vector<ComponentRun> runs() const {
    std::vector<double> left_out(static_cast<size_t>(errors_.components + 1));
    for (int64_t i = errors_.components; i-- > 0;) left_out[i] = left_out[i + 1] + errors_.variance[i];
    int64_t end = 0;
    int64_t spent = 0;
    size_t width = 0;
    double least = left_out[0];
    for (int64_t e = 0; e <= errors_.components; e = next_end(e)) {
      for (int64_t s = 0; s <= units_; ++s) {
        for (size_t w = 0; w <= kRunBits.size(); ++w) {
          const double error = at(e, s, w).error + left_out[e];
          if (error >= least) continue;
          least = error;
          std::tie(end, spent, width) = std::tuple(e, s, w);
        }
      }
    }
    std::vector<ComponentRun> runs;
    while (end > 0) {
      const Step step = at(end, spent, width);
      const ComponentRun run = run_of(end - kRunSizes[step.size], step.size, width);
      runs.push_back(run);
      end -= run.size;
      spent -= run.cost() / kRunUnit;
      width = step.width_before;
    }
    std::ranges::reverse(runs);
    return runs;
  }

 private:
  /// The best way to a state: its error, the last run's size and the width of the run before. Width 0 is that of single
  /// numbers in 16 bits, width w that of kRunBits[w - 1].
  struct Step {
    double error = std::numeric_limits<double>::infinity();
    int8_t size = 0;
    int8_t width_before = 0;
  };
  /// Where runs can end: anywhere among the singles, at multiples of kRunAlign behind them.
  static int64_t next_end(int64_t end) { return end < kRunSingles ? end + 1 : end + kRunAlign; }
  [[nodiscard]] size_t index(int64_t end, int64_t spent, size_t width) const {
    const int64_t place = end <= kRunSingles ? end : kRunSingles + (end - kRunSingles) / kRunAlign;
    return static_cast<size_t>(place * (units_ + 1) + spent) * (kRunBits.size() + 1) + width;
  }
  Step& at(int64_t end, int64_t spent, size_t width) { return best_[index(end, spent, width)]; }
  [[nodiscard]] const Step& at(int64_t end, int64_t spent, size_t width) const {
    return best_[index(end, spent, width)];
  }
  [[nodiscard]] static ComponentRun run_of(int64_t first, int8_t size, size_t width) {
    return {.first = first, .size = kRunSizes[size], .bits = width == 0 ? 0 : kRunBits[width - 1]};
  }

  void extend(int64_t end, int64_t spent, size_t width) {
    const double so_far = at(end, spent, width).error;
    if (std::isinf(so_far)) return;
    for (size_t next = width; next <= kRunBits.size(); ++next) {
      for (size_t size = next == 0 ? 0 : 1; size < (next == 0 ? 1 : kRunSizes.size()); ++size) {
        const ComponentRun run = run_of(end, static_cast<int8_t>(size), next);
        const int64_t units = spent + run.cost() / kRunUnit;
        const bool begins = size == 0 ? end < kRunSingles : end % kRunAlign == 0;
        if (!begins || end + run.size > errors_.components || units > units_) continue;
        const double error = so_far + errors_.of(size, next == 0 ? 0 : next - 1, end);
        Step& to = at(end + run.size, units, next);
        if (error < to.error) {
          to = {.error = error, .size = static_cast<int8_t>(size), .width_before = static_cast<int8_t>(width)};
        }
      }
    }
  }

  const RunErrors& errors_;
  int64_t units_;
  std::vector<Step> best_;
};

}  // namespace

std::vector<ComponentRun> allocate_bits(const RunErrors& errors, int64_t budget) {
  return Allocation(errors, budget).runs();
}

}  // namespace kvarena
