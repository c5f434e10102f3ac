#pragma once
// Rendezvous of the ranks of a model, and messages between them afterwards, by libtorch's process groups.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "harness/model/ranks/channel.h"

namespace kvarena {

/// A file that the ranks of one machine share, or the driver's address. Any process that reaches the address can join,
/// without a password: use it in a trusted network only.
struct RendezvousAddress {
  std::filesystem::path file;
  std::string host;  // when there is no file
  int64_t port = 0;
};

/// "HOST:PORT", "[::1]:PORT"; `place` names the option in errors.
[[nodiscard]] RendezvousAddress parse_address(const std::string& text, const std::string& place);

/// A store of keys and values that all ranks read and write.
class Rendezvous {
 public:
  /// The driver opens the rendezvous, the others come and wait for it to be open, at most `wait_limit`. Throws
  /// UserError naming the place.
  Rendezvous(const RendezvousAddress& place, const Share& share, std::chrono::seconds wait_limit);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] const Share& share() const { return share_; }
  void say(const std::string& key, const std::string& text);
  /// The value of `key`, if it has been set.
  [[nodiscard]] std::optional<std::string> heard(const std::string& key);
  /// Waits for the value of `key`, at most `wait_limit`.
  [[nodiscard]] std::string wait_for(const std::string& key);

 private:
  friend class GroupChannel;
  struct Impl;
  RendezvousAddress place_;
  Share share_;
  std::chrono::seconds wait_limit_;
  std::unique_ptr<Impl> impl_;
};

/// Reports that this rank cannot take part, under the key that the driver reads.
void set_failure(Rendezvous& rendezvous, const std::string& reason);

struct GroupOptions {
  std::chrono::seconds answer{600};    // a rank that takes longer over a product hangs
  std::chrono::seconds arrival{3600};  // for the others to load their shares
  /// At the driver: how ranks that it started have ended, "" while all live; waits so long for one to end.
  std::function<std::string(std::chrono::milliseconds wait)> lost = nullptr;
};

/// Messages over a process group (gloo, as tensors lie in the machine's memory) that is formed when all meet.
[[nodiscard]] std::unique_ptr<RankChannel> group_channel(std::shared_ptr<Rendezvous> rendezvous, GroupOptions options);

}  // namespace kvarena
