// Small copies in one launch.
#include "kernels/cuda/pieces_cuda.h"

#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::OnDevice;

class PiecesCuda : public CudaTest {};

TEST_F(PiecesCuda, EachGoesToItsPlaceAndNothingElseChanges) {
  constexpr int64_t kFloats = 4000;
  const std::vector<float> block = test::normal(kFloats, 1), before = test::normal(kFloats, 2);
  OnDevice device;
  const auto* from = reinterpret_cast<const char*>(device.copy(block));
  auto* to = reinterpret_cast<char*>(device.copy(before));
  struct Move {
    int64_t from, to, bytes;
  };
  // Places that only halves are aligned to, none at all, one number, more than a block has threads.
  const Move moves[] = {{0, 2, 6}, {10, 100, 0}, {16, 14, 2}, {64, 130, 1022}, {2000, 8000, 6002}, {8, 1154, 4}};
  std::vector<float> expected = before;
  std::vector<Piece> pieces;
  for (const Move& move : moves) {
    pieces.push_back({from + move.from, to + move.to, move.bytes});
    std::memcpy(reinterpret_cast<char*>(expected.data()) + move.to,
                reinterpret_cast<const char*>(block.data()) + move.from, static_cast<size_t>(move.bytes));
  }
  CudaScratch scratch;
  copy_pieces_cuda(pieces, scratch, nullptr);
  copy_pieces_cuda({}, scratch, nullptr);
  test::expect_same_bits(test::from_device(reinterpret_cast<const float*>(to), kFloats), expected, "all");
}

}  // namespace
}  // namespace kvarena::kernels
