#include "harness/method/prefill_pattern.h"

namespace kvarena {
namespace {

/// Each query of the prompt attends to the first `sinks` entries and to the `local` newest ones, its own among them:
/// the shape that attention of many heads has, fixed beforehand. What lies in the middle of a long prompt reaches the
/// answer through the window alone. Xiao et al. 2023, arXiv:2309.17453, as the static pattern of Jiang et al. 2024,
/// arXiv:2407.02490, section 3; streaming_forward of microsoft/MInference (fb56c91), whose defaults these are.
class AShape final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("sinks", sinks_).min(0).doc("first entries, which every query attends to");
    p("local", local_).min(1).doc("newest entries that a query attends to, its own among them");
  }

  PromptRanges attended(const LayerContext& /*layer*/, const LayerQueries& queries) const override {
    if (queries.q_len <= sinks_ + local_) return {};
    const auto sinks = static_cast<int32_t>(sinks_), n = static_cast<int32_t>(queries.q_len);
    return {{.first = 0, .count = n, .heads = {{{0, sinks}}}},
            {.first = 0, .count = n, .heads = {{{sinks, n}}}, .window = local_}};
  }

 private:
  int64_t sinks_ = 128;
  int64_t local_ = 3968;
};

KVARENA_PREFILL(AShape, {.name = "a_shape",
                         .title = "A-shape",
                         .summary = "Prompt queries attend to the first entries and to a local window.",
                         .paper = "arXiv:2407.02490, section 3"});

}  // namespace
}  // namespace kvarena
