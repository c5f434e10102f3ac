#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// Full recompute: the assembled prompt is computed from its first token on and nothing is reused; what methods that
/// reuse entries are compared with, by the same pass that they recompute with. Full KV's bits.
class FullRecompute final : public Reuser {
 public:
  ReuseSource source() const override { return ReuseSource::nothing; }
};

KVARENA_REGISTER(FullRecompute, Family::reference, std::make_unique<ReuseMethod>(std::make_unique<FullRecompute>()),
                 {.name = "full_recompute",
                  .title = "Full recompute",
                  .summary = "Computes every token of the assembled prompt; the reference of reuse.",
                  .paper = ""});

}  // namespace
}  // namespace kvarena
