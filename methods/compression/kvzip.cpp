#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Keeps what a repetition of the context reads back.  The model is asked to repeat the prompt, chunk by chunk, over
/// its own full cache; s[j,i] = max over h in group j and the repetition's queries t of softmax over [sinks; chunk; the
/// repetition itself] of q[h,t].k.  Costs about two prefills more.  Kim, Kim, Kwon, Lee, Yun, Song 2025,
/// arXiv:2505.23416, section 3.
/// `form` says whose details are followed.  authors: chunks are repeated behind the whole chat template, which shares
/// the softmax and is never dropped.  kvpress: its first 4 entries alone do, the rest of the template goes first.
/// `plus` weighs probabilities by |W_O v| / |attention input of the query| (kvpress's kvzip_plus), which KVzap learns.
/// The budget is met exactly here; the authors' code keeps scores above a threshold, up to one pair less.
class Kvzip final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("form", form_).one_of({"authors", "kvpress"}).doc("whose treatment of the chat template's entries");
    p("chunk", chunk_).min(1).doc("prompt tokens repeated in one go");
    p("plus", plus_).doc("weigh attention by what the entry's value writes into the residual stream");
  }
  Needs needs() const override { return {.reconstructions = {reconstruction()}}; }

  at::Tensor score(const LayerView& layer) const override {
    at::Tensor scores = layer.reconstruction_scores(reconstruction()).amax(1);
    const int64_t prefix = layer.reconstruction(reconstruction()).prefix;
    const int64_t kept = form_ == "authors" ? prefix : std::min(kSinks, layer.n());
    scores.narrow(1, 0, kept).fill_(std::numeric_limits<float>::max());
    return scores;
  }
  std::string default_rule() const override { return R"({"name":"global"})"; }

 private:
  static constexpr int64_t kSinks = 4;

  Reconstruction reconstruction() const {
    const bool authors = form_ == "authors";
    return {.chunk = chunk_,
            .first = "\n\nRepeat the previous context exactly.",
            .next = std::string("\n\nRepeat the part of the previous context exactly, starting with") +
                    (authors ? " " : ""),
            .tail = 8,
            .sinks = authors ? std::nullopt : std::optional(kSinks),
            .output_norm = plus_};
  }

  std::string form_ = "authors";
  int64_t chunk_ = 2000;
  bool plus_ = false;
};

KVARENA_SCORER(Kvzip, {.name = "kvzip",
                       .title = "KVzip",
                       .summary = "Keeps what the model reads when it repeats its context.",
                       .paper = "arXiv:2505.23416, section 3"});

}  // namespace
}  // namespace kvarena
