#include "harness/device/device_segment.h"

#include "harness/cache/hierarchical_segment.h"
#include "harness/cache/merged_segment.h"
#include "harness/cache/pruned_key_segment.h"
#include "kernels/cells/cells.h"
#include "tests/methods/compression/packed_layer.h"
#include "tests/support/differences.h"

namespace kvarena::device {
namespace {

using nlohmann::json;
using testing::kCodecShape;
using testing::PackedLayer;
using testing::random_floats;
using testing::relative_error;

constexpr double kRounding = 2e-6;

/// [kv_heads][keys, values] rows of all entries.
using Rows = std::vector<std::vector<float>>;

Rows rows_of(const Segment& segment) {
  Rows rows;
  for (int64_t h = 0; h < kCodecShape.kv_heads; ++h) {
    const auto numbers = static_cast<size_t>(segment.entries(h) * kCodecShape.head_dim);
    float* const keys = rows.emplace_back(numbers).data();
    segment.read(h, keys, rows.emplace_back(numbers).data());
  }
  return rows;
}

/// Entries dequantised by the device, so many at once.
Rows restored(const DeviceSegment& front, int64_t at_once) {
  const int64_t dim = kCodecShape.head_dim;
  kernels::CudaScratch scratch;
  const kernels::CudaBuffer memory(DequantWorkspace::numbers(at_once, kCodecShape) * 4);
  const DequantWorkspace room = DequantWorkspace::in(static_cast<float*>(memory.data()), at_once, kCodecShape);
  Rows rows(static_cast<size_t>(2 * kCodecShape.kv_heads));
  for (int64_t first = 0; first < front.entries(); first += at_once) {
    const int64_t count = std::min(at_once, front.entries() - first);
    const std::vector<kernels::HeadRun> runs = front.dequantize(first, count, room, scratch, nullptr);
    for (size_t side = 0; side < rows.size(); ++side) {
      const bool keys = side % 2 == 0;
      std::vector<float> cells(static_cast<size_t>(kernels::cells_for(count) * kernels::kCell * dim));
      kernels::cuda_download(cells.data(), keys ? runs[side / 2].keys : runs[side / 2].values, std::ssize(cells) * 4,
                             nullptr);
      kernels::cuda_synchronize(nullptr);
      rows[side].resize(static_cast<size_t>((first + count) * dim));
      kernels::load_rows({.kind = keys ? kernels::CellKind::keys : kernels::CellKind::values,
                          .dtype = kernels::DType::f32,
                          .head_dim = dim,
                          .data = cells.data()},
                         0, count, &rows[side][static_cast<size_t>(first * dim)], dim);
    }
  }
  return rows;
}

void expect_alike(const DeviceSegment& front, const Segment& segment, const std::string& what) {
  const Rows want = rows_of(segment), got = restored(front, 512);
  ASSERT_EQ(front.entries(), segment.entries(0)) << what;
  for (size_t side = 0; side < want.size(); ++side) {
    EXPECT_LT(relative_error(got[side], want[side]), kRounding)
        << what << ", " << (side % 2 == 0 ? "keys" : "values") << " of head " << side / 2;
  }
  EXPECT_EQ(restored(front, 48), got) << what;  // in whatever parts
}

class DeviceSegmentTest : public ::testing::Test {
 protected:
  [[nodiscard]] DeviceSegment front_of(const Segment& segment) {
    DeviceSegment made(stored_item(segment), shared, uploads);
    uploads.finish();
    return made;
  }
  /// Observations as a prefill would make them: inputs whose largest activations some codecs leave out.
  static LayerObservations observations(int64_t n) { return {.entries = n, .hidden = random_floats(n * 8, "hidden")}; }

  DequantShared shared;
  UploadBatch uploads;
};

TEST_F(DeviceSegmentTest, FollowsWhatCodecsPutTogether) {
  const std::vector<json> specs{{{"name", "gear"}, {"buffer", 64}},
                                {{"name", "gear"}, {"bits", 2}, {"sparsity", 0}},
                                {{"name", "gear"}, {"bits", 3}, {"rank_prefill", 0}, {"rank_decode", 0}},
                                {{"name", "rotatekv"}},
                                {{"name", "rotatekv"}, {"bits", 4}, {"massive", 0}, {"head_group", 1}},
                                {{"name", "kvquant"}},
                                {{"name", "kvquant"}, {"bits", 3}, {"codebook", "nf"}, {"outliers", 0}, {"sinks", 3}},
                                {{"name", "turboquant"}, {"variant", "prod"}},
                                {{"name", "turboquant"}, {"variant", "prod"}, {"value_mode", "uniform"}},
                                {{"name", "quantspec_kv"}, {"group_size", 32}, {"buffer", 16}}};
  for (const json& spec : specs) {
    PackedLayer layer(spec, kCodecShape, &testing::turning_model());
    layer.append(300);
    layer.compress(observations(300));
    const Segment* const segment = layer.packed();
    ASSERT_NE(segment, nullptr) << spec;
    ASSERT_EQ(DeviceSegment::unsupported_reason(stored_item(*segment)), "") << spec;
    DeviceSegment front = front_of(*segment);
    expect_alike(front, *segment, spec.dump());
    for (const int64_t steps : {70, 1, 400}) {  // the last one wants more room
      layer.decode(steps);
      ASSERT_EQ(front.version(), stored_item(*segment).stored->version());
      const bool more = segment->entries(0) > front.entries();
      EXPECT_EQ(front.follow(stored_item(*segment), uploads), more) << spec;
      uploads.finish();
      EXPECT_FALSE(front.follow(stored_item(*segment), uploads)) << spec;
      expect_alike(front, *segment, spec.dump());
    }
  }
}

TEST_F(DeviceSegmentTest, LayersShareWhatIsStoredForBoth) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const auto pair = std::make_shared<MergedPair>(kCodecShape, MergeRule{.retained = 0.1}, ledger);
  const MergedSegment lower(pair, /*upper=*/false), upper(pair, /*upper=*/true);
  EntrySegment below(kCodecShape, ledger), above(kCodecShape, ledger);
  const int64_t width = kCodecShape.kv_heads * kCodecShape.head_dim;
  std::vector<DeviceSegment> fronts;
  for (int64_t position = 0; const int64_t count : {300, 1, 90, 500}) {
    for (EntrySegment* tail : {&below, &above}) {
      const auto seed = static_cast<uint64_t>(position + (tail == &above ? 1000 : 1));
      const std::vector<float> keys = random_floats(count * width, "keys", seed);
      tail->append(keys.data(), random_floats(count * width, "values", seed).data(), count, width, position);
    }
    pair->take(below, above);
    position += count;
    if (fronts.empty()) {
      fronts.push_back(front_of(lower));
      fronts.push_back(front_of(upper));
    } else {
      EXPECT_TRUE(fronts[0].follow(stored_item(lower), uploads));
      EXPECT_TRUE(fronts[1].follow(stored_item(upper), uploads));
      uploads.finish();
    }
    expect_alike(fronts[0], lower, "the lower layer");
    expect_alike(fronts[1], upper, "the upper layer");
  }
  DequantShared other;
  const DeviceSegment alone(stored_item(lower), other, uploads);
  EXPECT_LE(fronts[0].bytes(), alone.bytes() - 891 * width * 2);  // in bf16, half of keys and values
}

TEST_F(DeviceSegmentTest, HoldsOfKeysTheChannelsThatAreLeft) {
  const auto ledger = std::make_shared<MemoryLedger>();
  const int64_t entries = 700, dim = kCodecShape.head_dim, width = kCodecShape.kv_heads * dim;
  EntrySegment whole(kCodecShape, ledger);
  whole.append(random_floats(entries * width, "keys").data(), random_floats(entries * width, "values").data(), entries,
               width, 0);
  const std::vector<int64_t> counts(static_cast<size_t>(kCodecShape.kv_heads), entries);
  std::vector<int64_t> bytes;
  for (const int64_t left : {dim, int64_t{13}, int64_t{0}}) {
    PrunedKeySegment::Channels channels;
    for (int64_t head = 0; head < kCodecShape.kv_heads; ++head) {
      std::vector<int32_t>& own = channels.emplace_back();
      for (int64_t i = 0; i < left; ++i) own.push_back(static_cast<int32_t>(left == dim ? i : 2 * i + head % 2));
    }
    const PrunedKeySegment pruned(whole, counts, channels, ledger);
    const DeviceSegment front = front_of(pruned);
    for (const int64_t at_once : {512, 48}) EXPECT_EQ(restored(front, at_once), rows_of(pruned)) << left;
    bytes.push_back(front.bytes());
    EXPECT_LE(bytes.back(), bytes.front() - kCodecShape.kv_heads * (dim - left) * entries * 2) << left;
  }
  const PrunedKeySegment ragged(whole, std::vector<int64_t>{entries, 5}, PrunedKeySegment::Channels(2), ledger);
  EXPECT_EQ(DeviceSegment::unsupported_reason(stored_item(ragged)), "packed heads of different lengths");
}

TEST_F(DeviceSegmentTest, RefusesWhatItCannotPutTogether) {
  LayerShape windowed = kCodecShape;
  windowed.window = 64;
  const auto reason = [](const LayerShape& shape) {
    const HierarchicalSegment planes(shape, 32, 64, std::make_shared<MemoryLedger>());
    return DeviceSegment::unsupported_reason(stored_item(planes));
  };
  EXPECT_EQ(reason(windowed), "packed entries under a sliding window");
  EXPECT_EQ(reason(kCodecShape), "");
}

}  // namespace
}  // namespace kvarena::device
