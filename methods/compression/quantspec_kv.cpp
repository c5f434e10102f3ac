#include <fmt/format.h>

#include "harness/cache/hierarchical_segment.h"
#include "harness/core/error.h"
#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// QuantSpec's cache by itself: entries of 8 bits in two planes of 4.  Of each group with lo = min x, s = (max x - lo)
/// / 15
///   u = round((x - lo) / s),  w = round(16 (x - (u s + lo)) / s) in -8 .. 7,  decoded (u + w / 16) s + lo, or u s +
///   lo.
/// Keys per channel in groups of tokens, values per token over the head's channels (128 of them where that divides it).
/// The newest entries stay in 16 bits: `buffer` of them and those of the group that is filling up; a full group leaves
/// at once. s and lo in f16. The authors' code lets the buffer run full by one token more before a group leaves.
/// Tiwari et al. 2025, arXiv:2502.10424, sections 4.2 and 4.3.
class QuantSpecKv final : public Codec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("group_size", group_size_).min(16).doc("tokens of a key channel that share a scale, a multiple of 16");
    p("buffer", buffer_).min(0).doc("newest entries in 16 bits beside those of the group that is filling up");
    p("read", read_)
        .one_of({"both", "upper"})
        .doc("planes that decoding attends to: both (8 bits) or the upper one (4)");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (group_size_ % 16 == 0) return;
    problems.push_back(describe(
        {.place = place + ".group_size", .found = fmt::format("{}", group_size_), .expected = "a multiple of 16"}));
  }
  std::unique_ptr<PackedSegment> make_segment(const LayerContext& layer) const override {
    const LayerShape& shape = layer.cache.shape();
    const int64_t value_group = shape.head_dim % kChannels == 0 ? kChannels : shape.head_dim;
    return std::make_unique<HierarchicalSegment>(shape, group_size_, value_group, layer.cache.ledger());
  }
  bool has_views() const override { return read_ == "upper"; }
  std::unique_ptr<Segment> view(const LayerCache& cache) const override {
    return std::make_unique<UpperPlaneView>(cache);
  }
  int64_t key_block() const override { return group_size_; }
  int64_t key_residual() const override { return buffer_; }

 private:
  static constexpr int64_t kChannels = 128;  // of a value that share a scale

  int64_t group_size_ = 128;
  int64_t buffer_ = 128;
  std::string read_ = "both";
};

KVARENA_CODEC(QuantSpecKv, {.name = "quantspec_kv",
                            .title = "QuantSpec's cache",
                            .summary = "8 bits in two planes of 4, of which the first can be read alone.",
                            .paper = "arXiv:2502.10424, section 4.2"});

}  // namespace
}  // namespace kvarena
