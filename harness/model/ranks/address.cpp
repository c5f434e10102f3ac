#include <fmt/format.h>

#include <charconv>

#include "harness/core/error.h"
#include "harness/model/ranks/rendezvous.h"

namespace kvarena {

RendezvousAddress parse_address(const std::string& text, const std::string& place) {
  const size_t colon = text.rfind(':');
  RendezvousAddress parsed;
  if (colon != std::string::npos) {
    parsed.host = text.substr(0, colon);
    if (parsed.host.starts_with('[') && parsed.host.ends_with(']')) {
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    const char* end = text.data() + text.size();
    const auto [after, error] = std::from_chars(text.data() + colon + 1, end, parsed.port);
    if (error == std::errc{} && after == end && parsed.port > 0 && parsed.port < 65536 && !parsed.host.empty()) {
      return parsed;
    }
  }
  fail({.place = place, .found = fmt::format("\"{}\"", text), .expected = "HOST:PORT, with a port from 1 to 65535"});
}

}  // namespace kvarena
