#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// The model drafts for itself on a compressed cache; the engine verifies on the full one. Any compressor
/// can draft; drafted entries live in the draft cache alone and are replaced by the verifier's once accepted.
/// Defaults are those of the paper's long-context pipeline: draft length 25. With "aux" (Appendix C) another verifier
/// drafts for the compressed cache, which verifies its drafts before full KV verifies all; draft_length then counts
/// passes over the compressed cache, whose inner drafts do not count. With "schedule" (sections 4.2 and 5) the full
/// caches lie behind the device and come back for their verifications alone; where memory is left, some stay (B_g of
/// Appendix B.1). "path" (section 5.3, Appendix B.2) is for caches that lie in a store.
/// Yao et al. 2026, arXiv:2605.17613, section 4. No code by the authors is public; tests/golden/speculation.py restates
/// the rounds.
class VeriCache final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("drafter", drafter_).required().doc("the compressor whose cache drafts");
    p("draft_length", draft_length_).min(1).doc("passes over the compressed cache before each verification");
    p("schedule", schedule_)
        .one_of({"resident", "staggered", "lock_step", "sequential"})
        .doc(
            "where full caches lie while drafting, and when they come back, in timing and serving cells: resident on "
            "the device, or behind it in \"tier\". Tokens are the same");
    p("tier", tier_).one_of({"host", "disk"}).doc("where full caches lie under a schedule other than resident");
    p("pin", pin_)
        .doc(
            "under the staggered schedule, full caches stay on the device where it has room beside those that come and "
            "go: they are verified on without a reload");
    p("fall_back", fall_back_)
        .doc(
            "staggered, requests whose full caches stay draft no more once the accepted drafts say that full KV gives "
            "more tokens a second, by the bytes that either reads (Eq. 11); and nobody does, requests without room "
            "wait, once full KV alone gives more, by measured times");
    p("path", path_)
        .one_of({"best", "verify_only_cached", "verify_only_stateless", "verify_streaming_cached",
                 "verify_streaming_stateless"})
        .doc(
            "under remote_prefix, how requests get at their prompts' caches: drafting on the compressed one while the "
            "full one comes to the local pool and stays (cached) or comes for each round (stateless), or what it lacks "
            "comes to the remote pool as well (streaming); best: the mix, with plain decoding, that serves the most "
            "tokens. Tokens are the same");
    p("aux", aux_).doc("a verifier whose drafts the compressed cache verifies first, several tokens a pass");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    const Family family = find_method(drafter_.name())->family;
    if (family == Family::verification) {
      problems.push_back(describe({.place = place + ".drafter.name",
                                   .found = fmt::format("\"{}\"", drafter_.name()),
                                   .expected = "a method with a cache of its own",
                                   .action = "verification methods cannot draft for each other; see \"aux\""}));
    }
    if (const std::string reason = drafter_->cannot_draft(); !reason.empty()) {
      problems.push_back(describe({.place = place + ".drafter",
                                   .found = reason,
                                   .expected = "a cache that takes drafts back, and several tokens in one pass"}));
    }
    if (!aux_) return;
    // Composition needs a cache that takes entries back: compressors' do.
    if (family != Family::compression) {
      problems.push_back(describe({.place = place + ".drafter.name",
                                   .found = fmt::format("\"{}\"", drafter_.name()),
                                   .expected = "a method that compresses, where \"aux\" drafts for it"}));
    }
    if (aux_->verifier() != nullptr && drafts_elsewhere(aux_->verifier()->drafter())) return;
    problems.push_back(describe({.place = place + ".aux.name",
                                 .found = fmt::format("\"{}\"", aux_.name()),
                                 .expected = "a verifier that drafts by another model, a head or a rule"}));
  }
  Drafter drafter() const override {
    return CompressedCopy{.compressor = drafter_,
                          .auxiliary = aux_,
                          .schedule = schedule_ == "resident" ? "" : schedule_,
                          .tier = tier_ == "disk" ? Tier::disk : Tier::host,
                          .pin = pin_,
                          .fall_back = fall_back_,
                          .prefix_path = path_ == "best" ? "" : path_};
  }
  int64_t draft_length() const override { return draft_length_; }
  int64_t draft_room(int64_t /*newest*/) const override {
    return aux_ ? draft_length_ * (1 + aux_->verifier()->draft_length()) : draft_length_;
  }

 private:
  /// Whether drafts need neither the target nor its cache.
  static bool drafts_elsewhere(const Drafter& drafter) {
    return std::holds_alternative<OtherCheckpoint>(drafter) || std::holds_alternative<DraftingHead>(drafter) ||
           std::holds_alternative<TextRule>(drafter);
  }

  Nested<Method> drafter_;
  Nested<Method> aux_;
  std::string schedule_ = "resident";
  std::string tier_ = "host";
  std::string path_ = "best";
  bool pin_ = true;
  bool fall_back_ = true;
  int64_t draft_length_ = 25;
};

KVARENA_VERIFIER(VeriCache, {.name = "vericache",
                             .title = "VeriCache",
                             .summary = "Drafts on a compressed cache and verifies on the full one: lossless.",
                             .paper = "arXiv:2605.17613, section 4"});

}  // namespace
}  // namespace kvarena
