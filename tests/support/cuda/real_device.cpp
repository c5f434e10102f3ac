// Linked to tests over a real device: they skip where there is none, and there is no emulator to ask.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "kernels/cuda/device.h"
#include "tests/support/cuda/emulator.h"

namespace emulated_cuda {
namespace {

[[noreturn]] void refuse() { throw std::logic_error(kOnlyHere); }

/// Ends a program that has no device with exit code 77. GoogleTest would count its tests as passed.
class RealDevice : public ::testing::Environment {
  void SetUp() override {
    const std::string reason = kvarena::kernels::cuda_absent();
    if (reason.empty()) return;
    std::printf("[  SKIPPED ] %d tests: %s\n", ::testing::UnitTest::GetInstance()->test_to_run_count(), reason.c_str());
    std::exit(77);
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
