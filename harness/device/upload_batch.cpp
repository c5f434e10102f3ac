#include "harness/device/upload_batch.h"

namespace kvarena::device {
namespace {

constexpr int64_t kLarge = 16 * 1024;  // bytes from which a copy of its own takes longer than starting it

}  // namespace

void UploadBatch::add(void* to, const void* from, int64_t begin, int64_t end) {
  if (to == nullptr || begin >= end) return;
  const int64_t bytes = end - begin;
  const auto* first = static_cast<const std::byte*>(from) + begin;
  auto* const place = static_cast<std::byte*>(to) + begin;
  if (bytes >= kLarge) return kernels::cuda_upload(place, first, bytes, nullptr);
  pieces_.push_back({.begin = std::ssize(staged_), .bytes = bytes, .to = place});
  staged_.insert(staged_.end(), first, first + bytes);
}

void UploadBatch::finish() {
  block_.reserve(std::ssize(staged_));
  kernels::cuda_upload(block_.data(), staged_.data(), std::ssize(staged_), nullptr);
  std::vector<kernels::Piece> pieces;
  for (const Staged& piece : pieces_) {
    pieces.push_back({static_cast<const std::byte*>(block_.data()) + piece.begin, piece.to, piece.bytes});
  }
  kernels::copy_pieces_cuda(pieces, scratch_, nullptr);
  kernels::cuda_synchronize(nullptr);
  pieces_.clear();
  staged_.clear();
}

}  // namespace kvarena::device
