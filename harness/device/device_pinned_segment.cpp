#include "harness/device/device_pinned_segment.h"

namespace kvarena::device {

DevicePinnedSegment::DevicePinnedSegment(const LowRankSegment& segment, UploadBatch& uploads) : version_(segment.version()) {
  const LayerShape& shape = segment.shape();
  const auto bytes_of = [&](const kernels::HeadRun& run) {
    return kernels::cell_bytes(run.entries, shape.head_dim, shape.dtype);
  };
  int64_t bytes = 0;
  for (int64_t h = 0; h < shape.kv_heads; ++h) bytes += 2 * bytes_of(segment.exact().run(h));
  memory_.reserve(bytes);
  auto* at = static_cast<char*>(memory_.data());
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    const kernels::HeadRun from = segment.exact().run(h);
    const int64_t side = bytes_of(from);
    uploads.add(at, from.keys, 0, side);
    uploads.add(at + side, from.values, 0, side);
    runs_.push_back({.keys = at, .values = at + side, .entries = from.entries});
    at += 2 * side;
  }
}

}  // namespace kvarena::device
