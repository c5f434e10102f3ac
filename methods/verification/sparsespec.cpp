#include <fmt/format.h>

#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Self-speculation on the resident full cache: a verification attends to everything, and what it attended to most is
/// what the next round's drafts attend to, with all that was made since (PillarAttn). The first round drafts on
/// everything. Zhao et al. 2025, arXiv:2512.01278, sections 4.1 and 4.2; defaults are those of the authors' scripts.
/// Their unified batches of drafting and verifying requests are what sessions here do anyway.
class SparseSpec final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification (the paper's stride)");
    p("keep", keep_).above(0).max(1).doc("share of the entries that drafts attend to");
    p("min_tokens", min_tokens_).min(1).doc("but at least so many of them");
    p.derive(view_, [this] { return settings(); });
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override { return CacheView{.method = view_}; }

 private:
  [[nodiscard]] std::string settings() const {
    return fmt::format(R"({{"name": "pillar_attn", "refresh": "runs", "keep": {}, "min_tokens": {}}})", keep_,
                       min_tokens_);
  }

  int64_t draft_length_ = 8;
  double keep_ = 0.05;
  int64_t min_tokens_ = 192;
  Nested<Method> view_{settings()};
};

KVARENA_VERIFIER(SparseSpec,
                 {.name = "sparsespec",
                  .title = "SparseSpec",
                  .summary = "Drafts on what the last verification attended to, full KV resident: lossless.",
                  .paper = "arXiv:2512.01278, section 4"});

}  // namespace
}  // namespace kvarena
