#pragma once
// NVIDIA's library for messages between devices, found when the program runs: nobody needs it to build, and machines
// with one device not at all.

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cuda/device.h"

struct ncclComm;

namespace kvarena::device {

/// ncclUniqueId: by it the ranks of a communicator find each other.
struct NcclId {
  char bytes[128] = {};
};

/// The functions of its C interface (version 2.7 and later) that are called here, by NVIDIA's names without "nccl".
/// Results are ncclResult_t, types ncclDataType_t.
struct NcclLibrary {
  static constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t
  static constexpr int kFloat32 = 7;                   // ncclDataType_t

  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*comm_init_rank)(ncclComm** comm, int ranks, NcclId id, int rank) = nullptr;
  int (*comm_abort)(ncclComm* comm) = nullptr;
  int (*comm_get_async_error)(ncclComm* comm, int* result) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* data, size_t count, int type, int to, ncclComm* comm, kernels::CudaStream stream) = nullptr;
  int (*recv)(void* data, size_t count, int type, int from, ncclComm* comm, kernels::CudaStream stream) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
};

/// Null where the loader does not find `file` or a function in it; then `reason` says so. Libraries stay loaded.
[[nodiscard]] std::shared_ptr<const NcclLibrary> find_nccl(std::string& reason,
                                                           const std::string& file = "libnccl.so.2");

}  // namespace kvarena::device
