// Linked to tests over a real device: they skip where there is none, and there is no emulator to ask.
#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/cuda/device.h"
#include "tests/support/cuda/emulator.h"

namespace emulated_cuda {
namespace {

[[noreturn]] void refuse() { throw std::logic_error(kOnlyHere); }

class RealDevice : public ::testing::Environment {
  void SetUp() override {
    const std::string reason = kvarena::kernels::cuda_absent();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};
const ::testing::Environment* const kDevice = ::testing::AddGlobalTestEnvironment(new RealDevice);

}  // namespace

bool here() { return false; }
Waits waits() { return {}; }
void start(CUstream_st* /*stream*/, std::function<void()> /*work*/) { refuse(); }
long copies_between_devices() { refuse(); }
long taken_bytes() { refuse(); }
void set_memory(long /*bytes*/) { refuse(); }
void set_lazy(bool /*on*/) { refuse(); }

}  // namespace emulated_cuda
