#pragma once
// Messages on a stream of bytes: eight bytes of length, little-endian, then CBOR (RFC 8949), which keeps every double
// and every byte of text as it was.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kvarena::experiment {

/// A longer message is a broken one: the largest real ones, a sample's series, are a few MiB.
inline constexpr uint64_t kLongestMessage = uint64_t{1} << 30U;  // bytes

[[nodiscard]] std::string frame(const nlohmann::json& message);

/// Assembles messages from the pieces in which they arrive.
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_ += bytes; }
  /// The next whole message, if it is there. Throws UserError when the bytes are no message.
  [[nodiscard]] std::optional<nlohmann::json> next();

 private:
  std::string buffer_;
};

/// Waits for a message on the socket `fd`; nothing when the other side is gone. For a worker, which has nothing else to
/// wait for.
[[nodiscard]] std::optional<nlohmann::json> receive(int fd, FrameReader& reader);
/// Writes a message to the socket; false when the other side is gone.
[[nodiscard]] bool send(int fd, const nlohmann::json& message);

}  // namespace kvarena::experiment
