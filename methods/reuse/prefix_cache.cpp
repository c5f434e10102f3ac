#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// Prefix caching: of an earlier prompt with the same beginning, the whole blocks that agree are reused and the rest is
/// computed. Exact; in prompts of several chunks nothing behind the first one can be found. Kwon et al. 2023 (vLLM),
/// arXiv:2309.06180; block 1 is Zheng et al. 2024 (SGLang), arXiv:2312.07104, section 3.
class PrefixCache final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("block", block_).min(1).doc("tokens of a block; only whole blocks are reused");
  }
  ReuseSource source() const override { return ReuseSource::prefix; }
  int64_t block() const override { return block_; }

 private:
  int64_t block_ = 16;
};

KVARENA_REUSER(PrefixCache, {.name = "prefix_cache",
                             .title = "Prefix caching",
                             .summary = "Reuses the beginning that an earlier prompt shares and computes the rest.",
                             .paper = "arXiv:2309.06180"});

}  // namespace
}  // namespace kvarena
