#include "harness/method/eviction.h"

namespace kvarena {
namespace {

/// The least frequently used context leaves a full tier, among equals the least recently used one. Counts never age.
/// O'Neil et al. 1993, SIGMOD, pages 297-306, compare it with recency.
class Lfu final : public storage::VictimPolicy {
 public:
  void parameters(ParameterVisitor& p) {
    p("promote_on_hit", promote_on_hit_).doc("move what is read to the fastest tier");
  }
  bool leaves_before(const storage::Context& a, const storage::Context& b) const override {
    return a.accesses != b.accesses ? a.accesses < b.accesses : a.last_access < b.last_access;
  }
  bool promotes_on_hit() const override { return promote_on_hit_; }

 private:
  bool promote_on_hit_ = true;
};

KVARENA_EVICTION(Lfu, {.name = "lfu",
                       .title = "LFU",
                       .summary = "A full tier gives up the context that was used least often.",
                       .paper = "SIGMOD 1993, 10.1145/170036.170081"});

}  // namespace
}  // namespace kvarena
