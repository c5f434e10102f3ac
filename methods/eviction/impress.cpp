#include "harness/method/eviction.h"

namespace kvarena {
namespace {

/// A context (in the paper a chunk of a prefix) is worth its access frequency times the share of its entries that
/// queries found important, a moving average that the store keeps; the least worthy leaves a full tier. Which entries
/// are important, and which chunks are read for them, is in harness/storage/placement/important_chunks.h.
/// Chen et al. 2025, FAST, pages 187-201. The test restates the worth by hand.
class Impress final : public storage::VictimPolicy {
 public:
  void parameters(ParameterVisitor& p) {
    p("promote_on_hit", promote_on_hit_).doc("move what is read to the fastest tier");
  }
  bool leaves_before(const storage::Context& a, const storage::Context& b) const override {
    const double worth_a = static_cast<double>(a.accesses) * a.importance;
    const double worth_b = static_cast<double>(b.accesses) * b.importance;
    return worth_a != worth_b ? worth_a < worth_b : a.last_access < b.last_access;
  }
  bool promotes_on_hit() const override { return promote_on_hit_; }

 private:
  bool promote_on_hit_ = true;
};

KVARENA_EVICTION(Impress,
                 {.name = "impress",
                  .title = "IMPRESS",
                  .summary = "A full tier gives up what is used least often times how much of it queries need.",
                  .paper = "FAST 2025, pages 187-201"});

}  // namespace
}  // namespace kvarena
