#include "harness/method/eviction.h"

namespace kvarena {
namespace {

/// The context that was stored first leaves a full tier, however often it is read. Reads move nothing: a context that
/// came back would be the first to leave again.
/// Yang et al. 2023, SOSP, pages 130-149.
class Fifo final : public storage::VictimPolicy {
 public:
  void parameters(ParameterVisitor& /*p*/) {}
  bool leaves_before(const storage::Context& a, const storage::Context& b) const override {
    return a.stored_at < b.stored_at;
  }
};

KVARENA_EVICTION(Fifo, {.name = "fifo",
                        .title = "FIFO",
                        .summary = "A full tier gives up the context that was stored first.",
                        .paper = "SOSP 2023, 10.1145/3600006.3613147"});

}  // namespace
}  // namespace kvarena
