#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "harness/cache/latent_segment.h"
#include "harness/method/codec.h"
#include "kernels/common/parallel.h"

namespace kvarena {
namespace {

/// Neighbouring layers share the left factor of one low-rank product.  The prompt's keys (before rotation) of a group
/// of layers, all heads side by side, are rows X [n, layers * kv_heads * head_dim]; with its main right singular
/// vectors V
///   Z = X V,   restored  X ~ Z V^T.
/// Z is stored once for the group, beside each layer's part of V; values likewise, with a rank of their own. Restored
/// keys are rotated to their positions. Later entries stay as they are, and the prompt itself is attended to in full.
/// The decomposition is that of the authors' code, which multiplies back at once; a rank is here a share of the group's
/// channels, so that defaults are theirs for Llama 3.1 8B (512 and 768 of 4 * 1024) and as much for any other model.
/// Factors take more room than short prompts. Chang, Lin, Akhauri, Lin, Wu, Ceze, Abdelfattah 2025, arXiv:2503.18893,
/// section 4.
class XKv final : public Method {
 public:
  void parameters(ParameterVisitor& p) override {
    p("group", group_).min(1).doc("neighbouring layers, of those acted on, that share latents");
    p("key_share", key_share_).min(0).max(1).doc("rank of keys as a share of the group's channels");
    p("value_share", value_share_).min(0).max(1).doc("rank of values as a share of the group's channels");
  }

  HookAccess reach() const override { return HookAccess::nothing; }

  void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> /*seen*/) const override {
    const auto group = static_cast<size_t>(group_);
    for (size_t first = 0; first < layers.size(); first += group)
      share(layers.subspan(first, std::min(group, layers.size() - first)));
  }

 private:
  /// Latents of one side and each layer's directions.
  struct Factors {
    std::vector<float> latents;  // [n, rank]
    std::vector<std::shared_ptr<const LatentBasis>> bases;
  };

  void share(std::span<LayerContext> layers) const {
    const LayerShape& shape = layers.front().cache.shape();
    const LedgerPtr& ledger = layers.front().cache.ledger();
    const int64_t n = layers.front().cache.tail().entries(0);
    if (n == 0) return;
    std::vector<EntryBlock> blocks;
    for (const LayerContext& layer : layers) {
      EntryBlock& block = blocks.emplace_back(front_of(layer.cache.tail(), n));
      const RotaryKeys rotary = rotary_keys(layer);
      for (int64_t h = 0; h < block.kv_heads; ++h)
        rotary.undo(block.key(h, 0), block.positions[static_cast<size_t>(h)]);
    }
    const Factors keys = factors(layers, blocks, &EntryBlock::keys, key_share_);
    const Factors values = factors(layers, blocks, &EntryBlock::values, value_share_);
    const auto latents = std::make_shared<LatentEntries>(shape.kv_heads, 1, 1, ledger);
    latents->append(blocks.front().positions, {keys.latents}, {values.latents});
    for (size_t i = 0; i < layers.size(); ++i) {
      LayerCache& cache = layers[i].cache;
      cache.tail().drop_front(n);
      cache.insert_before_tail(std::make_unique<LatentSegment>(cache.shape(),
                                                               LatentSegment::Parts{.latents = latents,
                                                                                    .keys = keys.bases[i],
                                                                                    .values = values.bases[i],
                                                                                    .rotary = rotary_keys(layers[i]),
                                                                                    .counts = i == 0},
                                                               ledger));
      layers[i].activity.entries_packed += n * shape.kv_heads;
    }
  }

  static Factors factors(std::span<const LayerContext> layers, std::vector<EntryBlock>& blocks,
                         std::vector<float> EntryBlock::*side, double share) {
    const kernels::ScopedThreads alone(1);  // with more, sums are divided otherwise and directions differ
    const EntryBlock& like = blocks.front();
    std::vector<at::Tensor> parts;
    for (EntryBlock& block : blocks) {
      parts.push_back(at::from_blob((block.*side).data(), {block.kv_heads, block.count, block.head_dim})
                          .transpose(0, 1)
                          .flatten(1));
    }
    const at::Tensor rows = at::cat(parts, 1);  // [n, layers * kv_heads * head_dim]
    const auto wanted = std::llround(share * static_cast<double>(rows.size(1)));
    const int64_t rank = std::clamp<int64_t>(wanted, 1, std::min(rows.size(0), rows.size(1)));
    const at::Tensor main = directions(rows.to(at::kDouble), rank);  // [layers * kv_heads * head_dim, rank]
    const at::Tensor latents = rows.matmul(main.to(at::kFloat)).contiguous();
    Factors found{.latents = {latents.const_data_ptr<float>(), latents.const_data_ptr<float>() + latents.numel()},
                  .bases = {}};
    const at::Tensor each = main.to(at::kFloat).view({std::ssize(layers), like.kv_heads, like.head_dim, rank});
    for (size_t i = 0; i < layers.size(); ++i) {
      const at::Tensor own = each[static_cast<int64_t>(i)].transpose(1, 2).contiguous();  // [kv_heads, rank, head_dim]
      found.bases.push_back(std::make_shared<const LatentBasis>(
          layers[i].cache.shape(), rank, like.kv_heads,
          std::span(own.const_data_ptr<float>(), static_cast<size_t>(own.numel())), layers[i].cache.ledger(),
          /*model=*/false));
    }
    return found;
  }

  /// The right singular vectors of the `rank` largest singular values, in columns, by the eigenvectors of whichever of
  /// x^T x and x x^T is smaller.
  static at::Tensor directions(const at::Tensor& x, int64_t rank) {
    const bool wide = x.size(1) > x.size(0);
    const auto [squares, vectors] = at::linalg_eigh(wide ? x.matmul(x.t()) : x.t().matmul(x));  // ascending
    const at::Tensor main = vectors.narrow(1, vectors.size(1) - rank, rank);
    if (!wide) return main;
    const at::Tensor sizes = squares.narrow(0, squares.size(0) - rank, rank).clamp_min(0).sqrt();
    return x.t().matmul(main) * at::where(sizes > 1e-7 * sizes.max(), sizes.reciprocal(), 0.0);
  }

  int64_t group_ = 4;
  double key_share_ = 0.125;
  double value_share_ = 0.1875;
};

KVARENA_METHOD(XKv, Family::compression,
               {.name = "xkv",
                .title = "xKV",
                .summary = "Groups of layers share the latents of one low-rank decomposition of the prompt.",
                .paper = "arXiv:2503.18893, section 4"});

}  // namespace
}  // namespace kvarena
