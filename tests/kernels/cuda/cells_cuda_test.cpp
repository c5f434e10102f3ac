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

TEST_F(CellsCuda, LoadedRowsOfManyHeadsHaveTheHostsBits) {
  for (const DType dtype : test::kDTypes) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      const int64_t heads = 3, head_dim = 80;
      const std::vector<float> rows = normal(60 * head_dim, 3, 100);
      std::vector<uint16_t> memory = marked_memory(60, head_dim, dtype);
      Cells from{kind, dtype, head_dim, memory.data()};
      store_rows(from, 0, 60, rows.data(), head_dim);
      OnDevice device;
      std::vector<float> want(static_cast<size_t>(50 * heads * head_dim));
      auto* got = device.copy(want);
      std::vector<RowLoad> loads;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t position = h * 7, count = h == 2 ? 0 : 40 + h;
        load_rows(from, position, count, &want[static_cast<size_t>(h * head_dim)], heads * head_dim);
        loads.push_back({from, position, count, got + h * head_dim, heads * head_dim});
        loads.back().from.data = device.copy(memory);
      }
      CudaScratch scratch;
      load_rows_cuda(loads, scratch, nullptr);
      test::expect_same_bits(test::from_device(got, std::ssize(want)), want, name_of(dtype));
    }
  }
}

TEST_F(CellsCuda, LoadedKeysMayHaveAnyNumberOfChannels) {
  const int64_t channels = 13, entries = 40;
  const std::vector<float> numbers = normal(cells_for(entries) * kCell * channels, 5);
  OnDevice device;
  std::vector<float> want(static_cast<size_t>(entries * channels));
  for (int64_t e = 0; e < entries; ++e) {
    for (int64_t c = 0; c < channels; ++c)
      want[static_cast<size_t>(e * channels + c)] =
          numbers[static_cast<size_t>(cell_offset(CellKind::keys, channels, e, c))];
  }
  auto* got = device.copy(std::vector<float>(want.size()));
  CudaScratch scratch;
  const RowLoad load{{CellKind::keys, DType::f32, channels, device.copy(numbers)}, 0, entries, got, channels};
  load_rows_cuda({&load, 1}, scratch, nullptr);
  test::expect_same_bits(test::from_device(got, std::ssize(want)), want, "13 channels");
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

TEST_F(CellsCuda, RowsAreStoredBehindALengthThatTheDeviceReads) {
  const int64_t head_dim = 32;
  const std::vector<float> rows = normal(20 * head_dim, 5);
  for (const int32_t before : {0, 15, 16, 30}) {
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{20}}) {
      std::vector<uint16_t> host = marked_memory(64, head_dim, DType::bf16);
      OnDevice device;
      Cells to{CellKind::keys, DType::bf16, head_dim, device.copy(host)};
      RowStore store{to, 3, count, device.copy(rows), head_dim};
      store.before = device.copy(std::vector<int32_t>{before});
      CudaScratch scratch;
      store_rows_cuda({&store, 1}, scratch, nullptr);
      store_rows({CellKind::keys, DType::bf16, head_dim, host.data()}, 3 + before, count, rows.data(), head_dim);
      EXPECT_EQ(test::from_device(static_cast<const uint16_t*>(to.data), static_cast<int64_t>(host.size())), host)
          << before << "+" << count;
    }
  }
}

TEST_F(CellsCuda, RowsGoToPlacesOfTheirOwnAndNeighboursKeepTheirs) {
  const int64_t head_dim = 48;
  const std::vector<int32_t> places{0, 1, 5, 15, 16, 17, 18, 31, 33, 34, 40, 41, 42, 43, 44, 45, 46, 47, 63};
  const auto count = static_cast<int64_t>(places.size());
  const std::vector<float> rows = normal(count * head_dim, 8);
  for (const DType dtype : test::kDTypes) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      std::vector<uint16_t> host = marked_memory(64, head_dim, dtype);
      OnDevice device;
      RowStore store{{kind, dtype, head_dim, device.copy(host)}, 7, count, device.copy(rows), head_dim};
      store.places = device.copy(places);
      CudaScratch scratch;
      store_rows_cuda({&store, 1}, scratch, nullptr);
      for (int64_t i = 0; i < count; ++i) {
        store_rows({kind, dtype, head_dim, host.data()}, places[static_cast<size_t>(i)], 1, rows.data() + i * head_dim,
                   head_dim);
      }
      EXPECT_EQ(test::from_device(static_cast<const uint16_t*>(store.to.data), static_cast<int64_t>(host.size())), host)
          << name_of(dtype);
    }
  }
}

TEST_F(CellsCuda, MergedEntriesComeFromBothRunsInTheOrderAsked) {
  const int64_t head_dim = 48, n = 40;
  const std::vector<float> near_rows = normal(n * head_dim, 6), far_rows = normal(n * head_dim, 7);
  const std::vector<int32_t> source{3, ~0, ~39, 17, 4, ~8, ~9, 39, 0, ~1, ~2, ~3, ~4, ~5, ~6, 38, 37, ~20, 1};
  const auto count = static_cast<int64_t>(source.size());
  for (const DType dtype : test::kDTypes) {
    for (const CellKind kind : {CellKind::keys, CellKind::values}) {
      for (const CellKind far_kind : {kind, CellKind::values}) {
        std::vector<uint16_t> near = marked_memory(n, head_dim, dtype), far = near, want = near;
        store_rows({kind, dtype, head_dim, near.data()}, 0, n, near_rows.data(), head_dim);
        store_rows({far_kind, dtype, head_dim, far.data()}, 0, n, far_rows.data(), head_dim);
        OnDevice device;
        EntryMerge merge{{kind, dtype, head_dim, device.copy(near)},
                         {far_kind, dtype, head_dim, device.copy(far)},
                         device.copy(source),
                         count,
                         {kind, dtype, head_dim, device.copy(want)}};
        const Cells to{kind, dtype, head_dim, want.data()};
        for (int64_t i = 0; i < count; ++i) {
          const int32_t s = source[static_cast<size_t>(i)];
          const std::vector<float>& rows = s < 0 ? far_rows : near_rows;
          store_rows(to, i, 1, rows.data() + (s < 0 ? ~s : s) * head_dim, head_dim);
        }
        CudaScratch scratch;
        merge_entries_cuda({&merge, 1}, scratch, nullptr);
        EXPECT_EQ(test::from_device(static_cast<const uint16_t*>(merge.to.data), static_cast<int64_t>(want.size())),
                  want)
            << name_of(dtype);
        merge.source = nullptr;
        merge.count = n;
        merge_entries_cuda({&merge, 1}, scratch, nullptr);
        store_rows(to, 0, n, far_rows.data(), head_dim);
        EXPECT_EQ(test::from_device(static_cast<const uint16_t*>(merge.to.data), static_cast<int64_t>(want.size())),
                  want)
            << name_of(dtype) << " all of one";
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
