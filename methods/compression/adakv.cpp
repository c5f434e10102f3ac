#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

/// One budget a layer, for which its heads compete: concentrated heads leave entries to scattered ones, and every head
/// is sure of a fifth of an equal share.  The division is the rule "heads", whose forms are the authors' and kvpress's;
/// the scores are those of any other method, and should be comparable between heads (attention is; norms hardly).
/// Feng, Lv, Cao, Xie, Zhou 2024, arXiv:2407.11550, section 4.
class AdaKv final : public WrappingScorer {
 public:
  AdaKv() : WrappingScorer(R"({"name":"snapkv"})") {}
  std::string default_rule() const override { return R"({"name":"heads"})"; }
};

KVARENA_SCORER(AdaKv, {.name = "adakv",
                       .title = "Ada-KV",
                       .summary = "Lets the heads of a layer compete for its budget, over any method's scores.",
                       .paper = "arXiv:2407.11550, section 4"});

}  // namespace
}  // namespace kvarena
