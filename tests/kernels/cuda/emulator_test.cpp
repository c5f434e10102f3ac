// The emulator finds what it is there to find: kernels with a planted mistake fail.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/cuda/emulated_cuda.h"

namespace {

std::string error_of(unsigned threads, size_t shared, const std::function<void()>& kernel) {
  try {
    emulated_cuda::run(1, threads, shared, kernel);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

/// Every thread writes its number and reads its neighbour's.
std::vector<unsigned> neighbours(unsigned threads, bool with_barrier) {
  std::vector<unsigned> got(threads);
  emulated_cuda::run(1, threads, threads * sizeof(unsigned), [&] {
    auto* shared = static_cast<unsigned*>(emulated_cuda::shared_memory());
    shared[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncthreads();
    got[threadIdx.x] = shared[(threadIdx.x + 1) % threads];
  });
  return got;
}

TEST(EmulatedCuda, AMissingBarrierGivesAWrongResult) {
  std::vector<unsigned> want(96);
  for (unsigned i = 0; i < 96; ++i) want[i] = (i + 1) % 96;
  EXPECT_EQ(neighbours(96, true), want);
  EXPECT_NE(neighbours(96, false), want);
}

TEST(EmulatedCuda, ThreadsRunInAnotherOrderUnderAnotherSeed) {
  const auto order = [](uint64_t seed) {
    emulated_cuda::set_seed(seed);
    std::vector<unsigned> ran;
    emulated_cuda::run(1, 64, 0, [&] { ran.push_back(threadIdx.x); });
    return ran;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(EmulatedCuda, DifferentBarriersAreAnError) {
  const std::string error = error_of(64, 0, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_NE(error.find("another barrier"), std::string::npos) << error;
}

TEST(EmulatedCuda, ABarrierThatNotAllReachIsAnError) {
  const std::string error = error_of(64, 0, [] {
    if (threadIdx.x == 7) __syncwarp();
    __syncthreads();
  });
  EXPECT_NE(error.find("wait for ever"), std::string::npos) << error;
}

TEST(EmulatedCuda, ALaneOfTheMaskThatReturnedIsAnError) {
  const std::string error = error_of(32, 0, [] {
    if (threadIdx.x == 3) return;
    __shfl_xor_sync(0xffffffffu, 1, 1);
  });
  EXPECT_NE(error.find("wait for ever"), std::string::npos) << error;
}

TEST(EmulatedCuda, ThreadsThatReturnedAreNotWaitedFor) {
  unsigned passed = 0;
  EXPECT_EQ(error_of(64, 0,
                     [&] {
                       if (threadIdx.x >= 40) return;
                       __syncthreads();
                       ++passed;
                     }),
            "");
  EXPECT_EQ(passed, 40u);
}

TEST(EmulatedCuda, SharedMemoryBeginsAsNaNAndItsEndIsGuarded) {
  std::vector<float> first(8);
  EXPECT_EQ(
      error_of(8, 32, [&] { first[threadIdx.x] = static_cast<float*>(emulated_cuda::shared_memory())[threadIdx.x]; }),
      "");
  for (const float x : first) EXPECT_TRUE(std::isnan(x));
  const std::string error =
      error_of(9, 32, [] { static_cast<float*>(emulated_cuda::shared_memory())[threadIdx.x] = 1; });
  EXPECT_NE(error.find("outside shared memory"), std::string::npos) << error;
}

TEST(EmulatedCuda, DeviceMemoryIsGuarded) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 10), cudaSuccess);
  static_cast<char*>(memory)[10] = 0;
  EXPECT_THROW(cudaFree(memory), std::logic_error);
  static_cast<char*>(memory)[10] = static_cast<char>(0xa5);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST(EmulatedCuda, ShufflesBallotsAndReductionsSeeTheirLanes) {
  std::vector<unsigned> exchanged(64), up(64), all(64), added(64);
  emulated_cuda::run(1, 64, 0, [&] {
    const unsigned i = threadIdx.x;
    exchanged[i] = __shfl_xor_sync(0xffffffffu, i, 5);
    up[i] = __shfl_up_sync(0xffffffffu, i, 3);
    all[i] = __ballot_sync(0xffffffffu, i % 2 == 0);
    added[i] = __reduce_add_sync(0xffffffffu, i);
  });
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(exchanged[i], i / 32 * 32 + (i % 32 ^ 5u));
    EXPECT_EQ(up[i], i % 32 < 3 ? i : i - 3);
    EXPECT_EQ(all[i], 0x55555555u);
    EXPECT_EQ(added[i], i < 32 ? 496u : 496u + 32u * 32u);
  }
}

/// Values that one stream reads while another writes them, with or without a wait between, under some seeds.
std::vector<int> read_across_streams(bool with_wait) {
  std::vector<int> seen;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    cudaStream_t writer = nullptr, reader = nullptr;
    cudaEvent_t written = nullptr;
    cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking);
    cudaEventCreate(&written);
    int number = 0, found = -1;
    emulated_cuda::start(writer, [&] { number = 7; });
    cudaEventRecord(written, writer);
    if (with_wait) cudaStreamWaitEvent(reader, written, 0);
    emulated_cuda::start(reader, [&] { found = number; });
    cudaStreamSynchronize(reader);
    seen.push_back(found);
    cudaEventDestroy(written);
    cudaStreamDestroy(reader);
    cudaStreamDestroy(writer);
  }
  return seen;
}

TEST(EmulatedCuda, AStreamThatDoesNotWaitForAnotherShows) {
  EXPECT_EQ(read_across_streams(true), std::vector<int>(20, 7));
  EXPECT_NE(read_across_streams(false), std::vector<int>(20, 7));
}

TEST(EmulatedCuda, PinnedMemoryIsReadWhenTheCopyRunsAndOtherMemoryAtTheCall) {
  void *device = nullptr, *pinned = nullptr;
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMalloc(&device, 4);
  cudaMallocHost(&pinned, 4);
  int late = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emulated_cuda::set_seed(seed);
    int ordinary = 1;
    *static_cast<int*>(pinned) = 1;
    cudaMemcpyAsync(device, &ordinary, 4, cudaMemcpyHostToDevice, stream);
    ordinary = 2;
    cudaStreamSynchronize(stream);
    EXPECT_EQ(*static_cast<int*>(device), 1);
    cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, stream);
    *static_cast<int*>(pinned) = 2;
    cudaStreamSynchronize(stream);
    late += *static_cast<int*>(device) == 2 ? 1 : 0;
  }
  EXPECT_GT(late, 0);
  cudaFreeHost(pinned);
  cudaFree(device);
  cudaStreamDestroy(stream);
}

}  // namespace
