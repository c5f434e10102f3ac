#include "harness/method/wrapping_scorer.h"

namespace kvarena {
namespace {

/// Votes of the last window of queries under budgets that fall linearly with depth: attention gathers on fewer entries
/// in deeper layers.  The division is the rule "pyramid", whose forms are the authors' and kvpress's; the scores are
/// those of any other method. Windows and pooling are kvpress's (64, average of 5); the authors' LongBench runs use
/// window 8, kernel 7, pool max.
/// Cai et al. 2024, arXiv:2406.02069, section 4.2.
class PyramidKv final : public WrappingScorer {
 public:
  PyramidKv() : WrappingScorer(R"({"name":"snapkv"})") {}
  std::string default_rule() const override { return R"({"name":"pyramid"})"; }
};

KVARENA_SCORER(PyramidKv, {.name = "pyramidkv",
                           .title = "PyramidKV",
                           .summary = "Keeps what the last queries attend to, fewer entries the deeper the layer.",
                           .paper = "arXiv:2406.02069, section 4.2"});

}  // namespace
}  // namespace kvarena
