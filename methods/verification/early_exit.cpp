#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Self-speculation by early exit: the target's first layers draft through its own final norm and head, on their part
/// of the full cache; no second cache, no second model. Checkpoints trained for early exits accept much, others little.
/// The default share is that of the paper's 7B model, 8 of 32 layers. Elhoushi et al. 2024 (LayerSkip),
/// arXiv:2404.16710, section 3.3 and Table 4.
class EarlyExit final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("layers", layers_).above(0).max(1).doc("share of the target's layers that drafts run through");
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification");
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override { return FirstLayers{.share = layers_}; }

 private:
  double layers_ = 0.25;
  int64_t draft_length_ = 6;
};

KVARENA_VERIFIER(EarlyExit, {.name = "early_exit",
                             .title = "Early exit",
                             .summary = "The target's first layers draft and the whole target verifies: lossless.",
                             .paper = "arXiv:2404.16710"});

}  // namespace
}  // namespace kvarena
