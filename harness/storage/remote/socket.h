#pragma once
// Stream sockets with time limits: a buffer is sent or received whole, or an error names the peer and says why.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace kvarena::storage {

/// A connection. Addresses are HOST:PORT, or the path of a Unix socket, which has a '/'. Throws UserError.
class Socket {
 public:
  /// Connects. Afterwards, too, a peer that gives or takes nothing for `patience_s` seconds has failed.
  static Socket connect(const std::string& address, double patience_s);
  /// Takes over an open socket.
  Socket(std::string peer, int handle) : peer_(std::move(peer)), handle_(handle) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&&) = delete;

  void send(std::span<const std::byte> bytes) const;
  void receive(std::span<std::byte> bytes) const;
  /// False where the peer closed the connection before the first byte.
  [[nodiscard]] bool receive_unless_closed(std::span<std::byte> bytes) const;
  void limit_sending(double patience_s) const;
  /// Ends it for both sides; whoever waits for it goes on.
  void shut_down() const;
  [[nodiscard]] const std::string& peer() const { return peer_; }

 private:
  std::string peer_;
  int handle_;
};

/// Takes connections at an address of this machine alone, since nothing proves who connects; port 0 is any free one.
class Listener {
 public:
  explicit Listener(const std::string& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The address that clients connect to.
  [[nodiscard]] const std::string& address() const { return address_; }
  /// The next connection; nothing once it was shut down.
  [[nodiscard]] std::optional<Socket> accept() const;
  void shut_down() const;

 private:
  std::string address_;
  int handle_ = -1;
};

}  // namespace kvarena::storage
