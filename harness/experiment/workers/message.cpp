#include "harness/experiment/workers/message.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/json_walk.h"

namespace kvarena::experiment {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;

uint64_t read_length(std::string_view bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return length;
}

/// Walks through a message without keeping it; stops where it nests deeper than any real one, which is read by
/// recursion.
class NestingWatch final : public JsonWalk {
 public:
  [[nodiscard]] bool too_deep() const { return depth_ > kDeepest; }

  bool start_object(size_t /*elements*/) override { return ++depth_ <= kDeepest; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t /*elements*/) override { return ++depth_ <= kDeepest; }
  bool end_array() override { return --depth_ >= 0; }

 private:
  static constexpr int kDeepest = 100;
  int depth_ = 0;
};

}  // namespace

std::string frame(const json& message) {
  std::string framed(kLengthBytes, '\0');
  json::to_cbor(message, framed);
  const uint64_t length = framed.size() - kLengthBytes;
  for (size_t i = 0; i < kLengthBytes; ++i) framed[i] = static_cast<char>((length >> (8 * i)) & 0xFFU);
  return framed;
}

std::optional<json> FrameReader::next() {
  if (buffer_.size() < kLengthBytes) return std::nullopt;
  const uint64_t length = read_length(buffer_);
  if (length > kLongestMessage) {
    fail({.place = "a worker's channel", .found = fmt::format("a message of {} bytes", length)});
  }
  if (buffer_.size() < kLengthBytes + length) return std::nullopt;
  const auto begin = buffer_.begin() + kLengthBytes;
  NestingWatch nesting;
  (void)json::sax_parse(begin, begin + static_cast<std::ptrdiff_t>(length), &nesting, json::input_format_t::cbor);
  if (nesting.too_deep()) {
    fail({.place = "a worker's channel",
          .found = "a message nested deeper than any real one",
          .expected = "an outcome"});
  }
  try {
    json message = json::from_cbor(begin, begin + static_cast<std::ptrdiff_t>(length));
    buffer_.erase(0, kLengthBytes + length);
    return message;
  } catch (const json::exception& error) {
    fail({.place = "a worker's channel", .found = fmt::format("bytes that are no message ({})", error.what())});
  }
}

std::optional<json> receive(int fd, FrameReader& reader) {
  std::array<char, 1 << 16> piece{};
  while (true) {
    if (auto message = reader.next()) return message;
    const ssize_t length = ::recv(fd, piece.data(), piece.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return std::nullopt;
    reader.append({piece.data(), static_cast<size_t>(length)});
  }
}

bool send(int fd, const json& message) {
  const std::string framed = frame(message);
  for (size_t sent = 0; sent < framed.size();) {
    const ssize_t length = ::send(fd, framed.data() + sent, framed.size() - sent, MSG_NOSIGNAL);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return false;
    sent += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace kvarena::experiment
