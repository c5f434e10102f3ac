#include "harness/method/registry.h"

namespace kvarena {
namespace {

/// Full KV: every entry stays, in the cache's dtype. What all other methods are compared with.
class Full final : public Method {
 public:
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }
  [[nodiscard]] bool looks_behind_windows() const override { return false; }
};

KVARENA_METHOD(Full, Family::reference,
               {.name = "full",
                .title = "Full KV",
                .summary = "Keeps every entry; the reference of every comparison.",
                .paper = ""});

}  // namespace
}  // namespace kvarena
