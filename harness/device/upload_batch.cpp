#include "harness/device/upload_batch.h"

#include <utility>

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
  stage(first, bytes, place, nullptr);
}

void UploadBatch::stage(const void* from, int64_t bytes, void* to, std::function<void(const void*)> placed) {
  const auto* const first = static_cast<const std::byte*>(from);
  pieces_.push_back({.begin = std::ssize(staged_), .bytes = bytes, .to = to, .placed = std::move(placed)});
  staged_.insert(staged_.end(), first, first + bytes);
}

void UploadBatch::send(kernels::CudaScratch& with, kernels::CudaStream stream) {
  if (!staged_.empty()) spread(with.upload(staged_.data(), std::ssize(staged_), stream), with, stream);
}

void UploadBatch::finish() {
  block_.reserve(std::ssize(staged_));
  kernels::cuda_upload(block_.data(), staged_.data(), std::ssize(staged_), nullptr);
  spread(block_.data(), scratch_, nullptr);
  kernels::cuda_synchronize(nullptr);
}

void UploadBatch::spread(const void* block, kernels::CudaScratch& with, kernels::CudaStream stream) {
  std::vector<kernels::Piece> pieces;
  for (const Staged& piece : pieces_) {
    const std::byte* const at = static_cast<const std::byte*>(block) + piece.begin;
    if (piece.placed) piece.placed(at);
    if (piece.to != nullptr) pieces.push_back({at, piece.to, piece.bytes});
  }
  kernels::copy_pieces_cuda(pieces, with, stream);
  pieces_.clear();
  staged_.clear();
}

}  // namespace kvarena::device
