#include "kernels/cells/cells_cuda.h"

#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::normal;
using test::OnDevice;

class CellsCuda : public CudaTest {};

std::vector<uint16_t> marked_memory(int64_t entries, int64_t head_dim, DType dtype) {
  return std::vector<uint16_t>(static_cast<size_t>(cell_bytes(entries, head_dim, dtype) / 2), uint16_t{0x5555});
}

TEST_F(CellsCuda, StoredRowsOfManyHeadsHaveTheHostsBits) {
  for (const DType dtype : test::kDTypes) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      const int64_t heads = 3, head_dim = 80, n = 50;
      const std::vector<float> rows = normal(n * heads * head_dim, 3, 100);
      OnDevice device;
      const float* device_rows = device.copy(rows);
      std::vector<std::vector<uint16_t>> host(heads, marked_memory(70, head_dim, dtype));
      std::vector<RowStore> stores;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t position = h * 7, count = h == 2 ? 0 : n - h;
        Cells to{kind, dtype, head_dim, host[static_cast<size_t>(h)].data()};
        stores.push_back({to, position, count, device_rows + h * head_dim, heads * head_dim});
        stores.back().to.data = device.copy(host[static_cast<size_t>(h)]);
        store_rows(to, position, count, rows.data() + h * head_dim, heads * head_dim);
      }
      CudaScratch scratch;
      store_rows_cuda(stores, scratch, nullptr);
      for (size_t h = 0; h < host.size(); ++h) {
        const auto* got = static_cast<const uint16_t*>(stores[h].to.data);
        EXPECT_EQ(test::from_device(got, static_cast<int64_t>(host[h].size())), host[h])
            << name_of(dtype) << " head " << h;
      }
    }
  }
}

TEST_F(CellsCuda, GatheredEntriesHaveTheHostsBitsAndNeighboursKeepTheirs) {
  const std::vector<std::vector<int32_t>> lists{
      {0, 1, 2, 5, 40, 41, 99}, {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 64}, {}};
  for (const DType dtype : test::kDTypes) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      const int64_t head_dim = 64;
      const std::vector<float> rows = normal(100 * head_dim, 4);
      std::vector<uint16_t> source = marked_memory(100, head_dim, dtype);
      const Cells from{kind, dtype, head_dim, source.data()};
      store_rows(from, 0, 100, rows.data(), head_dim);
      OnDevice device;
      Cells device_from = from;
      device_from.data = device.copy(source);
      std::vector<std::vector<uint16_t>> host(lists.size(), marked_memory(60, head_dim, dtype));
      std::vector<EntryGather> gathers;
      for (size_t i = 0; i < lists.size(); ++i) {
        const Cells to{kind, dtype, head_dim, host[i].data()};
        const auto count = static_cast<int64_t>(lists[i].size());
        const int64_t position = i == 0 ? 13 : 16;
        Cells device_to = to;
        device_to.data = device.copy(host[i]);
        gathers.push_back({device_from, device.copy(lists[i]), count, device_to, position});
        gather_entries(from, lists[i].data(), count, to, position);
      }
      CudaScratch scratch;
      gather_entries_cuda(gathers, scratch, nullptr);
      for (size_t i = 0; i < host.size(); ++i) {
        const auto* got = static_cast<const uint16_t*>(gathers[i].to.data);
        EXPECT_EQ(test::from_device(got, static_cast<int64_t>(host[i].size())), host[i]) << name_of(dtype) << " " << i;
      }
    }
  }
}

TEST_F(CellsCuda, GatheringInPlaceIsRefused) {
  std::vector<float> memory(256);
  const Cells cells{CellKind::keys, DType::f32, 16, memory.data()};
  CudaScratch scratch;
  const EntryGather gather{cells, nullptr, 1, cells, 0};
  EXPECT_THROW(gather_entries_cuda({&gather, 1}, scratch, nullptr), std::logic_error);
}

}  // namespace
}  // namespace kvarena::kernels
