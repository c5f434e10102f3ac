#include <algorithm>

#include "harness/method/prefill_pattern.h"

namespace kvarena {
namespace {

/// A-shape, and the prompt's last `last` queries attend to everything: a question at the end finds what the window
/// has not carried there. Li et al. 2024, SCBench, arXiv:2412.10319, section 3; tri_shape_kernel of
/// microsoft/MInference (fb56c91), whose defaults these are.
class TriShape final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, which every query attends to");
    p("local", local_).min(1).doc("newest entries that a query attends to, its own among them");
    p("last", last_).min(1).doc("last queries of the prompt, which attend to everything");
  }

  PromptRanges attended(const LayerContext& /*layer*/, const LayerQueries& queries) const override {
    const int64_t front = queries.q_len - std::min(last_, queries.q_len - 1);
    if (front <= sinks_ + local_) return {};
    const auto sinks = static_cast<int32_t>(sinks_), n = static_cast<int32_t>(queries.q_len);
    return {{.first = 0, .count = front, .heads = {{{0, sinks}}}},
            {.first = 0, .count = front, .heads = {{{sinks, n}}}, .window = local_},
            {.first = front, .count = n - front, .heads = {{{0, n}}}}};
  }

 private:
  int64_t sinks_ = 128;
  int64_t local_ = 3968;
  int64_t last_ = 100;
};

KVARENA_PREFILL(TriShape, {.name = "tri_shape",
                           .title = "Tri-shape",
                           .summary = "A-shape whose last queries attend to the whole prompt.",
                           .paper = "arXiv:2412.10319, section 3"});

}  // namespace
}  // namespace kvarena
