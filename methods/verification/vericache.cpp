#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// The model drafts for itself on a compressed cache; the engine verifies on the full one. Any compressor
/// can draft; drafted entries live in the draft cache alone and are replaced by the verifier's once accepted.
/// Defaults are those of the paper's long-context pipeline: draft length 25. With "aux" (Appendix C) another verifier
/// drafts for the compressed cache, which verifies its drafts before full KV verifies all; draft_length then counts
/// passes over the compressed cache, whose inner drafts do not count. With "schedule" (sections 4.2 and 5) the full
/// caches lie in host memory and come back for their verifications alone. "path" (section 5.3, Appendix B.2) is for
/// caches that lie in a store.
/// Yao et al. 2026, arXiv:2605.17613, section 4.
class VeriCache final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("drafter", drafter_).required().doc("the compressor whose cache drafts");
    p("draft_length", draft_length_).min(1).doc("passes over the compressed cache before each verification");
    p("schedule", schedule_)
        .one_of({"resident", "staggered", "lock_step", "sequential"})
        .doc(
            "where full caches lie while drafting, and when they come back, in timing and serving cells: resident on "
            "the device, or in host memory behind engine.host_link. Tokens are the same");
    p("path", path_)
        .one_of({"best", "verify_only_cached", "verify_only_stateless", "verify_streaming_cached",
                 "verify_streaming_stateless"})
        .doc(
            "under remote_prefix, how requests get at their prompts' caches: drafting on the compressed one while the "
            "full one comes to the local pool and stays (cached) or comes for each round (stateless), or follows to "
            "the remote pool as well (streaming); best: the mix, with plain decoding, that serves the most tokens. "
            "Tokens are the same");
    p("aux", aux_).doc("a verifier whose drafts the compressed cache verifies first, several tokens a pass");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    const auto spec = nlohmann::json::parse(drafter_.json);
    const auto nested = check_method(spec, place + ".drafter");
    problems.insert(problems.end(), nested.begin(), nested.end());
    if (nested.empty() && find_method(spec["name"])->family == Family::verification) {
      problems.push_back(describe({.place = place + ".drafter.name",
                                   .found = spec["name"].dump(),
                                   .expected = "a method with a cache of its own",
                                   .action = "verification methods cannot draft for each other; see \"aux\""}));
    }
    if (!aux_.json.empty()) check_auxiliary(place, nested.empty() ? spec["name"] : nlohmann::json(), problems);
  }
  std::string drafter() const override { return drafter_.json; }
  std::string auxiliary() const override { return aux_.json; }
  int64_t draft_length() const override { return draft_length_; }
  std::string schedule() const override { return schedule_ == "resident" ? "" : schedule_; }
  std::string prefix_path() const override { return path_ == "best" ? "" : path_; }
  int64_t draft_room(int64_t /*newest*/) const override {
    if (aux_.json.empty()) return draft_length_;
    const auto aux = make_method(nlohmann::json::parse(aux_.json), "aux");
    return draft_length_ * (1 + aux->verifier()->draft_length());
  }

 private:
  /// Composition needs a cache that takes entries back: compressors' do.
  void check_auxiliary(const std::string& place, const nlohmann::json& drafter,
                       std::vector<std::string>& problems) const {
    const auto spec = nlohmann::json::parse(aux_.json);
    const auto nested = check_method(spec, place + ".aux");
    problems.insert(problems.end(), nested.begin(), nested.end());
    if (drafter.is_string() && find_method(drafter.get<std::string>())->family != Family::compression) {
      problems.push_back(describe({.place = place + ".drafter.name",
                                   .found = drafter.dump(),
                                   .expected = "a method that compresses, where \"aux\" drafts for it"}));
    }
    if (!nested.empty()) return;
    const auto method = make_method(spec, place + ".aux");
    const Verifier* aux = method->verifier();
    if (aux != nullptr && aux->drafter().empty() && aux->draft_view().empty() && aux->draft_layers() == 0) return;
    problems.push_back(describe({.place = place + ".aux.name",
                                 .found = spec["name"].dump(),
                                 .expected = "a verifier that drafts by another model, a head or a rule"}));
  }

  NestedSpec drafter_;
  NestedSpec aux_;
  std::string schedule_ = "resident";
  std::string path_ = "best";
  int64_t draft_length_ = 25;
};

KVARENA_VERIFIER(VeriCache, {.name = "vericache",
                             .title = "VeriCache",
                             .summary = "Drafts on a compressed cache and verifies on the full one: lossless.",
                             .paper = "arXiv:2605.17613, section 4"});

}  // namespace
}  // namespace kvarena
