#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Attention sinks and a recent window: the first `sinks` entries and as many of the newest as the budget allows,
/// after the prompt and after every step.  Keys keep their original rotation, the convention of kvpress; with
/// "positions": "renumber" they are rotated by their index in the cache and the query by the last one, the authors'
/// rule (streaming_llm/pos_shift), which differs once entries have been dropped. Their prompt is windowed too, token by
/// token; here it is read with full attention.
/// Xiao, Tian, Chen, Han, Lewis 2023, arXiv:2309.17453, section 3.2.
class StreamingLlm final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override { p("sinks", sinks_).min(0).doc("first entries, kept for ever"); }
  // Newer is better; sinks are no candidates.
  at::Tensor score(const LayerView& layer) const override { return layer.positions().to(at::kFloat); }
  Protection protect(int64_t /*budget*/) const override { return {.sinks = sinks_}; }
  bool evicts_while_decoding() const override { return true; }

 private:
  int64_t sinks_ = 4;
};

KVARENA_SCORER(StreamingLlm, {.name = "streaming_llm",
                              .title = "StreamingLLM",
                              .summary = "Keeps the first few entries and a window of the newest.",
                              .paper = "arXiv:2309.17453, section 3.2"});

}  // namespace
}  // namespace kvarena
