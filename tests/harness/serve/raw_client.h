#pragma once
// A client that reads when it likes and leaves when it likes.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace kvarena::serve {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }
  void post(const nlohmann::json& body) const {
    const std::string text = body.dump();
    send("POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  void stream(nlohmann::json body) const {
    body["stream"] = true;
    post(body);
  }
  /// Reads what has come, waiting for it; "" where the server has closed or nothing came.
  [[nodiscard]] std::string read(int milliseconds = 1000) const {
    pollfd look{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&look, 1, milliseconds) <= 0) return "";
    std::array<char, 4096> buffer{};
    const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
    return count <= 0 ? "" : std::string(buffer.data(), static_cast<size_t>(count));
  }
  /// Everything up to the end of the connection or `end` in it.
  [[nodiscard]] std::string read_until(const std::string& end) const {
    std::string all;
    while (all.find(end) == std::string::npos) {
      const std::string more = read(60'000);
      if (more.empty()) break;
      all += more;
    }
    return all;
  }

 private:
  int socket_;
};

}  // namespace kvarena::serve
