#include "harness/device/ranks/host_exchange.h"

#include <memory>

namespace kvarena::device {
namespace {

int64_t floats_of(std::span<const PeerBuffer> letters) {
  int64_t all = 0;
  for (const PeerBuffer& letter : letters) all += letter.count;
  return all;
}

std::span<float> take(float*& at, int64_t count) {
  const std::span<float> taken(at, static_cast<size_t>(count));
  at += count;
  return taken;
}

}  // namespace

void HostExchange::exchange(std::span<const PeerBuffer> out, std::span<const PeerBuffer> in,
                            kernels::CudaStream stream) {
  kernels::cuda_synchronize(stream);  // what came last may still be on its way from staged_
  staged_.at_least(floats_of(out) + floats_of(in));
  float* at = staged_.data();
  std::vector<std::span<float>> leaving;
  for (size_t i = 0; i < out.size(); ++i) {
    const bool again = i > 0 && out[i].data == out[i - 1].data && out[i].count == out[i - 1].count;
    leaving.push_back(again ? leaving.back() : take(at, out[i].count));
    if (!again) kernels::cuda_download(leaving.back().data(), out[i].data, out[i].count * 4, stream);
  }
  kernels::cuda_synchronize(stream);
  std::vector<std::unique_ptr<Transfer>> sending, receiving;
  std::vector<std::span<float>> coming;
  for (const PeerBuffer& letter : in) {
    coming.push_back(take(at, letter.count));
    receiving.push_back(channel_->receive(letter.other, coming.back()));
  }
  for (size_t i = 0; i < out.size(); ++i) sending.push_back(channel_->send(out[i].other, leaving[i]));
  for (size_t i = 0; i < in.size(); ++i) {
    receiving[i]->wait();
    kernels::cuda_upload(in[i].data, coming[i].data(), in[i].count * 4, stream);
  }
  for (const auto& one : sending) one->wait();
}

}  // namespace kvarena::device
