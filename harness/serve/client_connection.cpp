#include "harness/serve/client_connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>

namespace kvarena::serve {
namespace {

bool is_connected_to(int socket, const std::string& address, const std::string& port) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  auto* name = reinterpret_cast<sockaddr*>(&peer);
  if (::getpeername(socket, name, &size) != 0) return false;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  const int failed = ::getnameinfo(name, size, host.data(), host.size(), service.data(), service.size(),
                                   NI_NUMERICHOST | NI_NUMERICSERV);
  return failed == 0 && address == host.data() && port == service.data();
}

}  // namespace

ClientConnection::ClientConnection(const std::string& address, int port) {
  std::error_code trouble;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", trouble)) {
    const int candidate = std::atoi(entry.path().filename().c_str());
    if (is_connected_to(candidate, address, std::to_string(port))) socket_ = candidate;
  }
}

bool ClientConnection::gone() const {
  pollfd look{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void ClientConnection::stop_reading() const { ::shutdown(socket_, SHUT_RD); }

}  // namespace kvarena::serve
