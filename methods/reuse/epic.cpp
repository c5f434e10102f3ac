#include <algorithm>

#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// EPIC (LegoLink): the first k tokens of every chunk but the first are computed anew. Computed alone, they were a
/// beginning, and gathered the attention that a sequence's first tokens do; in the middle of a prompt that distracts.
/// Hu et al. 2025, arXiv:2410.15332, section 4.
class Epic final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("tokens", tokens_).min(0).doc("first tokens of each chunk that are computed anew");
  }

  std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    std::vector<int32_t> selected;
    for (size_t i = 1; i < prompt.parts.size(); ++i) {
      const PromptPart& part = prompt.parts[i];
      for (int64_t t = part.begin; t < std::min(part.end, part.begin + tokens_); ++t) {
        selected.push_back(static_cast<int32_t>(t));
      }
    }
    return selected;
  }

 private:
  int64_t tokens_ = 16;
};

KVARENA_REUSER(Epic, {.name = "epic",
                      .title = "EPIC",
                      .summary = "Reuses chunks computed alone but for the first tokens of each.",
                      .paper = "arXiv:2410.15332"});

}  // namespace
}  // namespace kvarena
