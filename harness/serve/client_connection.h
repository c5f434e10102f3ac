#pragma once
// The socket of a client that is being answered, which cpp-httplib 0.11 does not show to handlers.

#include <string>

namespace kvarena::serve {

class ClientConnection {
 public:
  /// Finds the socket by the client's address, which no other open one has.
  ClientConnection(const std::string& address, int port);

  /// Whether the client has closed its end.
  [[nodiscard]] bool gone() const;
  /// Nothing more is read from it: the connection ends with the answer.
  void stop_reading() const;

 private:
  int socket_ = -1;
};

}  // namespace kvarena::serve
