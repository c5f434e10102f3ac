// Compares our declarations of NCCL with NVIDIA's header, and calls the library.
#include <gtest/gtest.h>
#include <nccl.h>

#include "harness/device/ranks/nccl_library.h"

namespace kvarena::device {
namespace {

static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(ncclSuccess == NcclLibrary::kSuccess && ncclInProgress == NcclLibrary::kInProgress);
static_assert(ncclFloat32 == NcclLibrary::kFloat32);
static_assert(sizeof(ncclUniqueId) == sizeof(NcclId) && alignof(ncclUniqueId) == alignof(NcclId));

/// A function of the header as it is called here: enumerations are numbers, and handles are its own.
template <class Theirs>
struct AsCalled {
  using Type = Theirs;
};
template <>
struct AsCalled<ncclResult_t> {
  using Type = int;
};
template <>
struct AsCalled<ncclResult_t*> {
  using Type = int*;
};
template <>
struct AsCalled<ncclDataType_t> {
  using Type = int;
};
template <>
struct AsCalled<ncclUniqueId> {
  using Type = NcclId;
};
template <>
struct AsCalled<ncclUniqueId*> {
  using Type = NcclId*;
};
template <class Result, class... Arguments>
struct AsCalled<Result (*)(Arguments...)> {
  using Type = typename AsCalled<Result>::Type (*)(typename AsCalled<Arguments>::Type...);
};

template <auto Theirs, class Ours>
constexpr bool kAgrees = std::is_same_v<typename AsCalled<decltype(Theirs)>::Type, Ours>;

static_assert(kAgrees<&ncclGetUniqueId, decltype(NcclLibrary::get_unique_id)>);
static_assert(kAgrees<&ncclCommInitRank, decltype(NcclLibrary::comm_init_rank)>);
static_assert(kAgrees<&ncclCommAbort, decltype(NcclLibrary::comm_abort)>);
static_assert(kAgrees<&ncclCommGetAsyncError, decltype(NcclLibrary::comm_get_async_error)>);
static_assert(kAgrees<&ncclGroupStart, decltype(NcclLibrary::group_start)>);
static_assert(kAgrees<&ncclGroupEnd, decltype(NcclLibrary::group_end)>);
static_assert(kAgrees<&ncclSend, decltype(NcclLibrary::send)>);
static_assert(kAgrees<&ncclRecv, decltype(NcclLibrary::recv)>);
static_assert(kAgrees<&ncclGetErrorString, decltype(NcclLibrary::get_error_string)>);

TEST(NcclInterface, TheLibraryGivesAnId) {
  std::string reason;
  const auto library = find_nccl(reason);
  if (library == nullptr) GTEST_SKIP() << reason;
  NcclId id;
  EXPECT_EQ(library->get_unique_id(&id), NcclLibrary::kSuccess);
  EXPECT_TRUE(std::ranges::any_of(id.bytes, [](char byte) { return byte != 0; }));
}

}  // namespace
}  // namespace kvarena::device
