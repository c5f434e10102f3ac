#include <ATen/ATen.h>

#include "harness/method/layer_view.h"
#include "harness/method/reuser.h"
#include "harness/method/tensors.h"

namespace kvarena {
namespace {

/// A context's first entries, from which training starts: the first is frozen, as the authors' code has it.
class FirstEntries final : public Fitter {
 public:
  explicit FirstEntries(int64_t entries) : entries_(entries) {}
  FittedRequest artifact() const override {
    return {.method = "cartridges",
            .variant = {},
            .path = {},
            .wanted = {"fixed_keys", "fixed_values", "trainable_keys", "trainable_values"}};
  }
  Needs needs() const override { return {}; }
  int64_t sample_tokens() const override { return entries_; }

  FittedTensors collect(const LayerView& layer, const RandomStream& /*draws*/) const override {
    FittedTensors all;
    for (const auto& [name, rows] : {std::pair{"keys", layer.keys()}, {"values", layer.values()}}) {
      const at::Tensor own = rows.slice(1, 0, entries_).unsqueeze(0);  // [1, kv_heads, entries, head_dim]
      all[std::string("fixed_") + name] = weight_of(own.slice(2, 0, 1));
      all[std::string("trainable_") + name] = weight_of(own.slice(2, 1));
    }
    return all;
  }
  FittedTensors solve(const std::vector<FittedTensors>& records, const RandomStream& /*draws*/) const override {
    return records.front();
  }

 private:
  int64_t entries_;
};

/// Cartridges: p entries that were trained to stand for a corpus take the place of a prompt's context, which is not
/// read; the question follows them as if it stood at position p. Training lets a model with the entries alone say what
/// it says with the whole corpus before it (self-study). Eyuboglu et al. 2025, arXiv:2506.06266, sections 3 and 4;
/// HazyResearch/cartridges (ff1a3fb), whose TrainableCache holds keys turned to positions 0 .. p-1, the first of them
/// frozen. `scripts/train_cartridge.py` trains one, or brings a checkpoint of theirs into a folder;
/// `kvarena fit cartridges --from FOLDER` makes the artifact, which holds for one model. Without `--from` a fit takes
/// the first text's first entries, untrained: where training begins. One artifact stands for one corpus: prompts about
/// others need another. Contexts of at most p tokens are read.
class Cartridges final : public Reuser {
 public:
  void parameters(ParameterVisitor& p) override {
    p("weights", weights_).doc("file of a cartridge; empty = the one in KVARENA_HOME for the model");
    p("entries", entries_).min(2).doc("of a cartridge that `kvarena fit` makes of a text's beginning");
  }
  std::unique_ptr<Fitter> fitter() const override { return std::make_unique<FirstEntries>(entries_); }

  ReuseSource source() const override { return ReuseSource::artifact; }
  FittedRequest artifact() const override {
    FittedRequest request = FirstEntries(entries_).artifact();
    request.path = weights_;
    return request;
  }
  PartRows entries_in(const FittedWeights& weights, std::span<const LayerShape> layers) const override {
    PartRows rows;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      rows.keys.push_back(rows_of(weights, layer, "keys", layers[layer]));
      rows.values.push_back(rows_of(weights, layer, "values", layers[layer]));
    }
    return rows;
  }

 private:
  static std::vector<float> rows_of(const FittedWeights& weights, size_t layer, const std::string& side,
                                    const LayerShape& shape) {
    std::vector<at::Tensor> parts;
    for (const char* kind : {"fixed_", "trainable_"}) {
      const std::string name = "layers." + std::to_string(layer) + "." + kind + side;
      if (kind[0] == 'f' && !weights.has(name)) continue;  // nothing was frozen
      parts.push_back(tensor_of(weights.at(name, {1, shape.kv_heads, -1, shape.head_dim})));
    }
    const at::Tensor rows = at::cat(parts, 2)[0].transpose(0, 1).contiguous();  // [entries, kv_heads, head_dim]
    return {rows.const_data_ptr<float>(), rows.const_data_ptr<float>() + rows.numel()};
  }

  std::string weights_;
  int64_t entries_ = 64;
};

KVARENA_REUSER(Cartridges, {.name = "cartridges",
                            .title = "Cartridges",
                            .summary = "Puts entries that were trained for a corpus in place of the context.",
                            .paper = "arXiv:2506.06266"});

}  // namespace
}  // namespace kvarena
