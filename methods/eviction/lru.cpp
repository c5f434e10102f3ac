#include "harness/method/eviction.h"

namespace kvarena {
namespace {

/// The least recently used context leaves a full tier. Contexts come to the fastest tier, and come back to it when they
/// are read. Mattson et al. 1970, IBM Systems Journal 9(2).
class Lru final : public storage::VictimPolicy {
 public:
  void parameters(ParameterVisitor& p) {
    p("promote_on_hit", promote_on_hit_).doc("move what is read to the fastest tier");
  }
  bool leaves_before(const storage::Context& a, const storage::Context& b) const override {
    return a.last_access < b.last_access;
  }
  bool promotes_on_hit() const override { return promote_on_hit_; }

 private:
  bool promote_on_hit_ = true;
};

KVARENA_EVICTION(Lru, {.name = "lru",
                       .title = "LRU",
                       .summary = "A full tier gives up the context that was used least recently.",
                       .paper = "IBM Systems Journal 9(2), 1970"});

}  // namespace
}  // namespace kvarena
