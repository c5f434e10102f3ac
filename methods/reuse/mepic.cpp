#include "harness/method/reuser.h"

namespace kvarena {
namespace {

/// MEPIC: pages of chunks are the same for every request. A chunk begins at a page: padding in front fills its first
/// block, so that of n tokens that holds
///   r = n mod block, or block where that is 0
/// and these are computed anew, of every chunk but the prompt's beginning. The other pages stay unchanged where the
/// memory holds them, their keys turned to the chunk's place when they are attended to. Wang et al. 2025,
/// arXiv:2512.16822, sections 3.2.1, 3.2.2 and 3.3; there is no code by the authors. A page is a cell of 16 entries.
/// Not said there and chosen here: padding has no position and nobody attends to it, and keys in memory are turned by
/// their places in the chunk, not unturned, which saves a rounding and is as independent of the prompt. While a prompt
/// is read its chunks lie in a copy, which is gone with the first token. A request's bytes count its shared pages
/// whole; all requests together, and a server's memory, count each page once. Layers with a window hold copies.
class Mepic final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override { p("block", block_).min(1).doc("tokens of a block of the padding"); }
  bool shares_cells() const override { return true; }

  std::vector<int32_t> select(const ReusePrompt& prompt) const override {
    std::vector<int32_t> selected;
    for (size_t i = 1; i < prompt.parts.size(); ++i) {
      const PromptPart& part = prompt.parts[i];
      const int64_t first = (part.end - part.begin - 1) % block_ + 1;
      for (int64_t t = part.begin; t < part.begin + first; ++t) selected.push_back(static_cast<int32_t>(t));
    }
    return selected;
  }

 private:
  int64_t block_ = 16;
};

KVARENA_REUSER(Mepic, {.name = "mepic",
                       .title = "MEPIC",
                       .summary = "Shares pages of chunks between requests; the first block of each is computed anew.",
                       .paper = "arXiv:2512.16822, section 3"});

}  // namespace
}  // namespace kvarena
