#include "tests/support/cuda/emulated_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// Names and types are those of NCCL's C interface.
// NOLINTBEGIN
enum ncclResult_t { ncclSuccess = 0, ncclInvalidUsage = 5 };
enum ncclDataType_t { ncclFloat32 = 7 };
struct ncclUniqueId {
  char internal[128];
};
struct ncclComm;

namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "emulated NCCL: %s\n", what);
  std::abort();
}

/// A communicator: its ranks that have joined, and messages under way.
struct Room {
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> letters;  // from, to
};

struct PeerBuffer {
  ncclComm* comm = nullptr;
  CUstream_st* stream = nullptr;
  const void* out = nullptr;  // or
  void* in = nullptr;
  size_t count = 0;
  int other = 0;
};

std::mutex the_rooms;
std::map<std::string, std::shared_ptr<Room>> rooms;
int rooms_made = 0;
long numbers = 0;
void (*wait_for)(CUstream_st*) = nullptr;
thread_local int open_groups = 0;
thread_local std::vector<PeerBuffer> group;

}  // namespace

struct ncclComm {
  std::shared_ptr<Room> room;
  int rank = 0, ranks = 0;
};

namespace {

void put(const PeerBuffer& letter) {
  Room& room = *letter.comm->room;
  const auto* begin = static_cast<const float*>(letter.out);
  const std::lock_guard lock(room.mutex);
  room.letters[{letter.comm->rank, letter.other}].emplace_back(begin, begin + letter.count);
  room.changed.notify_all();
}

void take(const PeerBuffer& letter) {
  Room& room = *letter.comm->room;
  std::unique_lock lock(room.mutex);
  auto& box = room.letters[{letter.other, letter.comm->rank}];
  room.changed.wait(lock, [&] { return !box.empty(); });
  if (box.front().size() != letter.count) give_up("a message of another length than expected");
  std::memcpy(letter.in, box.front().data(), letter.count * sizeof(float));
  box.pop_front();
}

ncclResult_t add(const PeerBuffer& letter, ncclDataType_t type) {
  if (open_groups == 0 || type != ncclFloat32) return ncclInvalidUsage;
  if (letter.other == letter.comm->rank || letter.other < 0 || letter.other >= letter.comm->ranks)
    return ncclInvalidUsage;
  group.push_back(letter);
  return ncclSuccess;
}

}  // namespace

extern "C" {

void emulated_nccl_wait_by(void (*synchronize)(CUstream_st*)) { wait_for = synchronize; }
long emulated_nccl_numbers() {
  const std::lock_guard lock(the_rooms);
  return numbers;
}

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "invalid usage"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(the_rooms);
  std::snprintf(id->internal, sizeof id->internal, "room %d", ++rooms_made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm** comm, int ranks, ncclUniqueId id, int rank) {
  std::shared_ptr<Room> room;
  {
    const std::lock_guard lock(the_rooms);
    std::shared_ptr<Room>& place = rooms[id.internal];
    if (place == nullptr) place = std::make_shared<Room>();
    room = place;
  }
  std::unique_lock lock(room->mutex);
  ++room->here;
  room->changed.notify_all();
  room->changed.wait(lock, [&] { return room->here == ranks; });
  *comm = new ncclComm{room, rank, ranks};
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm* comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm*, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm* comm,
                      CUstream_st* stream) {
  return add({.comm = comm, .stream = stream, .out = data, .count = count, .other = peer}, type);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm* comm, CUstream_st* stream) {
  return add({.comm = comm, .stream = stream, .in = data, .count = count, .other = peer}, type);
}

/// Runs the group's operations at once, after the stream's work, behind which NCCL would queue them.
ncclResult_t ncclGroupEnd() {
  if (--open_groups > 0) return ncclSuccess;
  for (const PeerBuffer& letter : group) wait_for(letter.stream);
  for (const PeerBuffer& letter : group) {
    if (letter.out != nullptr) put(letter);
  }
  for (const PeerBuffer& letter : group) {
    if (letter.in != nullptr) take(letter);
  }
  const std::lock_guard lock(the_rooms);
  for (const PeerBuffer& letter : std::exchange(group, {})) numbers += static_cast<long>(letter.count);
  return ncclSuccess;
}

}  // extern "C"
// NOLINTEND
