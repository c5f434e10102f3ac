#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// The model drafts for itself on a compressed cache; the engine verifies on the full one. Any compressor
/// can draft; drafted entries live in the draft cache alone and are replaced by the verifier's once accepted.
/// Defaults are those of the paper's long-context pipeline: draft length 25.
/// Yao et al. 2026, arXiv:2605.17613, section 4.
class VeriCache final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("drafter", drafter_).required().doc("the compressor whose cache drafts");
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    const auto spec = nlohmann::json::parse(drafter_.json);
    const auto nested = check_method(spec, place + ".drafter");
    problems.insert(problems.end(), nested.begin(), nested.end());
    if (nested.empty() && find_method(spec["name"])->family == Family::verification) {
      problems.push_back(describe({.place = place + ".drafter.name",
                                   .found = spec["name"].dump(),
                                   .expected = "a method with a cache of its own",
                                   .action = "verification methods cannot draft for each other"}));
    }
  }
  std::string drafter() const override { return drafter_.json; }
  int64_t draft_length() const override { return draft_length_; }

 private:
  NestedSpec drafter_;
  int64_t draft_length_ = 25;
};

KVARENA_VERIFIER(VeriCache, {.name = "vericache",
                             .title = "VeriCache",
                             .summary = "Drafts on a compressed cache and verifies on the full one: lossless.",
                             .paper = "arXiv:2605.17613, section 4"});

}  // namespace
}  // namespace kvarena
