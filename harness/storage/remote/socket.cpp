#include "harness/storage/remote/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

constexpr int kQueued = 64;  // connections that wait to be taken
constexpr std::chrono::milliseconds kRetry{10};

/// An address as the system takes it.
struct Endpoint {
  int family = AF_UNIX;
  sockaddr_storage address = {};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string reason(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINPROGRESS) return "nothing came in time";
  return std::generic_category().message(error);
}

[[noreturn]] void refuse(const std::string& peer, const std::string& found) {
  fail({.place = fmt::format("store {}", peer),
        .found = found,
        .expected = "a `kvarena store` that goes on",
        .action = "see whether it runs there and what it said"});
}

[[noreturn]] void bad_address(const std::string& address, const std::string& found) {
  fail({.place = fmt::format("address {}", address),
        .found = found,
        .expected = "HOST:PORT, or a path with a '/' of a Unix socket"});
}

bool is_path(const std::string& address) { return address.find('/') != std::string::npos; }

Endpoint unix_endpoint(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof(address.sun_path)) bad_address(path, fmt::format("{} characters", path.size()));
  std::ranges::copy(path, std::begin(address.sun_path));
  Endpoint endpoint{.length = sizeof(address)};
  std::memcpy(&endpoint.address, &address, sizeof(address));
  return endpoint;
}

std::vector<Endpoint> endpoints_of(const std::string& address) {
  if (is_path(address)) return {unix_endpoint(address)};
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) bad_address(address, "no port");
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const addrinfo wanted{.ai_flags = AI_NUMERICSERV,
                        .ai_family = AF_UNSPEC,
                        .ai_socktype = SOCK_STREAM,
                        .ai_protocol = 0,
                        .ai_addrlen = 0,
                        .ai_addr = nullptr,
                        .ai_canonname = nullptr,
                        .ai_next = nullptr};
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &wanted, &found);
  if (error != 0) bad_address(address, ::gai_strerror(error));
  std::vector<Endpoint> all;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Endpoint& endpoint = all.emplace_back(Endpoint{.family = one->ai_family, .length = one->ai_addrlen});
    std::memcpy(&endpoint.address, one->ai_addr, one->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return all;
}

bool on_this_machine(const Endpoint& endpoint) {
  if (endpoint.family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(&endpoint.address);
    return ntohl(address->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (endpoint.family != AF_INET6) return true;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&endpoint.address)->sin6_addr) != 0;
}

void set_limit(int handle, int option, double seconds) {
  const timeval limit{.tv_sec = static_cast<time_t>(seconds),
                      .tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1.0) * 1e6)};
  (void)::setsockopt(handle, SOL_SOCKET, option, &limit, sizeof(limit));
}

void prepare(int handle) {
  const int yes = 1;
  (void)::setsockopt(handle, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // no effect on Unix sockets
  (void)::setsockopt(handle, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

}  // namespace

Socket Socket::connect(const std::string& address, double patience_s) {
  int error = 0;
  for (const Endpoint& endpoint : endpoints_of(address)) {
    Socket socket(address, ::socket(endpoint.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    prepare(socket.handle_);
    set_limit(socket.handle_, SO_RCVTIMEO, patience_s);
    set_limit(socket.handle_, SO_SNDTIMEO, patience_s);
    if (::connect(socket.handle_, endpoint.raw(), endpoint.length) == 0) return socket;
    error = errno;
  }
  refuse(address, fmt::format("cannot be reached: {}", reason(error)));
}

Socket::~Socket() {
  if (handle_ >= 0) ::close(handle_);
}

Socket::Socket(Socket&& other) noexcept : peer_(std::move(other.peer_)), handle_(std::exchange(other.handle_, -1)) {}

void Socket::send(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(handle_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) refuse(peer_, fmt::format("{} bytes could not be sent: {}", bytes.size(), reason(errno)));
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void Socket::receive(std::span<std::byte> bytes) const {
  if (!receive_unless_closed(bytes)) refuse(peer_, fmt::format("it closed with {} bytes to come", bytes.size()));
}

bool Socket::receive_unless_closed(std::span<std::byte> bytes) const {
  const size_t all = bytes.size();
  while (!bytes.empty()) {
    const ssize_t got = ::recv(handle_, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(peer_, fmt::format("{} bytes did not come: {}", bytes.size(), reason(errno)));
    if (got == 0 && bytes.size() == all) return false;
    if (got == 0) refuse(peer_, fmt::format("it closed with {} bytes to come", bytes.size()));
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

void Socket::limit_sending(double patience_s) const { set_limit(handle_, SO_SNDTIMEO, patience_s); }

void Socket::shut_down() const { (void)::shutdown(handle_, SHUT_RDWR); }

Listener::Listener(const std::string& address) : address_(address) {
  const Endpoint endpoint = endpoints_of(address).front();
  if (!on_this_machine(endpoint)) {
    fail({.place = fmt::format("address {}", address),
          .found = "one that other machines reach",
          .expected = "one of this machine alone: nothing proves who connects",
          .action = "other machines come through a tunnel (ssh -L)"});
  }
  handle_ = ::socket(endpoint.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (!is_path(address)) (void)::setsockopt(handle_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(handle_, endpoint.raw(), endpoint.length) != 0 || ::listen(handle_, kQueued) != 0) {
    const int error = errno;
    ::close(handle_);
    fail({.place = fmt::format("address {}", address), .found = reason(error), .expected = "one that is free"});
  }
  if (is_path(address)) return;
  Endpoint bound{.length = sizeof(sockaddr_storage)};
  (void)::getsockname(handle_, reinterpret_cast<sockaddr*>(&bound.address), &bound.length);
  const auto* numbered = reinterpret_cast<const sockaddr_in*>(&bound.address);  // sin6_port lies where sin_port does
  address_ = fmt::format("{}:{}", address.substr(0, address.rfind(':')), ntohs(numbered->sin_port));
}

Listener::~Listener() {
  ::close(handle_);
  if (is_path(address_)) ::unlink(address_.c_str());
}

std::optional<Socket> Listener::accept() const {
  while (true) {
    const int handle = ::accept4(handle_, nullptr, nullptr, SOCK_CLOEXEC);
    if (handle >= 0) {
      prepare(handle);
      return Socket("client", handle);
    }
    if (errno == EINVAL) return std::nullopt;
    if (errno != EINTR) std::this_thread::sleep_for(kRetry);  // the machine may have more to give then
  }
}

void Listener::shut_down() const { (void)::shutdown(handle_, SHUT_RDWR); }

}  // namespace kvarena::storage
