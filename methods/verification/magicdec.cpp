#include <fmt/format.h>

#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Self-speculation with a sparse draft cache beside the resident full one: sinks and a window, or SnapKV's selection
/// of the prompt. Defaults are those of the authors' code: 7 tokens drafted on a budget of 4097.
/// Sadhukhan et al. 2024, arXiv:2408.11049, section 4. The authors' code is CUDA; its SnapKV votes leave out 1 /
/// sqrt(d), here they do not. tests/golden/speculation.py restates the rounds.
class MagicDec final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens drafted before each verification (gamma)");
    p("draft_tokens", draft_tokens_).min(33).doc("entries a head of the draft cache");
    p("selection", selection_).one_of({"window", "snapkv"}).doc("what the draft cache keeps of the prompt");
    p.derive(compressor_, [this] { return settings(); });
  }
  int64_t draft_length() const override { return draft_length_; }
  Drafter drafter() const override { return CompressedCopy{.compressor = compressor_}; }

 private:
  [[nodiscard]] std::string settings() const {
    if (selection_ == "window") return fmt::format(R"({{"name": "streaming_llm", "tokens": {}}})", draft_tokens_);
    return fmt::format(R"({{"name": "snapkv", "tokens": {}, "window": 32, "kernel": 5, "pool": "avg"}})",
                       draft_tokens_);
  }

  int64_t draft_length_ = 7;
  int64_t draft_tokens_ = 4097;
  std::string selection_ = "window";
  Nested<Method> compressor_{settings()};
};

KVARENA_VERIFIER(MagicDec, {.name = "magicdec",
                            .title = "MagicDec",
                            .summary = "Drafts on a sparse cache of fixed size and verifies on the full one: lossless.",
                            .paper = "arXiv:2408.11049"});

}  // namespace
}  // namespace kvarena
