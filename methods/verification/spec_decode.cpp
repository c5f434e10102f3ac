#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Speculative decoding: a smaller checkpoint drafts on a full cache of its own. One of another vocabulary drafts text,
/// which is read in the target's tokens: it is then taken by its likeliest tokens, whatever draft_sampling says.
/// Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318; vocabularies: Timor et al. 2025,
/// arXiv:2502.05202.
class SpecDecode final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_model", draft_model_)
        .required()
        .doc("the drafter: a folder of KVARENA_HOME/models, a folder or .gguf file");
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification");
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override { return OtherCheckpoint{.path = draft_model_}; }

 private:
  std::string draft_model_;
  int64_t draft_length_ = 5;
};

KVARENA_VERIFIER(SpecDecode, {.name = "spec_decode",
                              .title = "Speculative decoding",
                              .summary = "A smaller model drafts and the target verifies: lossless.",
                              .paper = "arXiv:2211.17192"});

}  // namespace
}  // namespace kvarena
