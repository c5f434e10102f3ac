#include <fmt/format.h>

#include <algorithm>

#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Self-speculation on one cache of 8 bits: drafting reads the upper 4 of them, verifying all. The newest entries are
/// exact for both; drafts only ever touch these, and are taken back before the verification.
/// Lossless towards decoding on the 8-bit cache (quantspec_kv), not towards full KV. So that this holds bit for bit, a
/// round ends where a group of entries leaves the buffer, once in `group_size` tokens; the authors' rounds run past it.
/// Their draft also runs on 4-bit weights; here it has the target's. Tiwari et al. 2025, arXiv:2502.10424, section 4;
/// defaults are those of the authors' scripts.
class QuantSpec final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification (gamma)");
    p("group_size", group_size_).min(16).doc("tokens of a key channel that share a scale, a multiple of 16");
    p("buffer", buffer_).min(0).doc("newest entries in 16 bits beside those of the group that is filling up");
    p.derive(verified_, [this] { return settings("both"); });
    p.derive(drafted_, [this] { return settings("upper"); });
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override { return CacheView{.method = drafted_}; }
  Nested<Method> verified_cache() const override { return verified_; }
  int64_t draft_room(int64_t newest) const override {
    return std::min(draft_length_, buffer_ + group_size_ - 1 - newest);
  }

 private:
  [[nodiscard]] std::string settings(const char* planes) const {
    return fmt::format(R"({{"name": "quantspec_kv", "group_size": {}, "buffer": {}, "read": "{}"}})", group_size_,
                       buffer_, planes);
  }

  int64_t draft_length_ = 5;
  int64_t group_size_ = 128;
  int64_t buffer_ = 128;
  Nested<Method> verified_{settings("both")};
  Nested<Method> drafted_{settings("upper")};
};

KVARENA_VERIFIER(QuantSpec,
                 {.name = "quantspec",
                  .title = "QuantSpec",
                  .summary = "Drafts on 4 bits of an 8-bit cache and verifies on all: lossless towards 8 bits.",
                  .paper = "arXiv:2502.10424, section 4"});

}  // namespace
}  // namespace kvarena
