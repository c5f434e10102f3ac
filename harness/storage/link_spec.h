#pragma once
// Cost of moving bytes over a link, as data.

#include <cstdint>
#include <string>
#include <vector>

namespace kvarena::storage {

/// Linear cost model: a transfer of p separate pieces takes latency_s + p * piece_s + bytes / bytes_per_s.
struct LinkSpec {
  std::string name;
  double bytes_per_s = 0;  // one direction; 0: nothing is emulated, the link is as fast as it really is
  double latency_s = 0;    // from asking to the first byte
  double piece_s = 0;      // cost of each piece that does not adjoin the one before: scattered memory
  std::string source;

  [[nodiscard]] bool emulated() const { return bytes_per_s > 0; }
  /// 0 for a link that is not emulated.
  [[nodiscard]] double seconds(int64_t bytes, int64_t pieces) const;
};

/// `spec` at another rate: a piece costs as many bytes' time as before. Emulates nothing where `spec` does not.
[[nodiscard]] LinkSpec at_rate(LinkSpec spec, double bytes_per_s);

/// Every named link, slowest last. "real" emulates nothing.
[[nodiscard]] const std::vector<LinkSpec>& known_links();
/// Throws UserError naming `place` and the nearest known name.
[[nodiscard]] const LinkSpec& link_named(const std::string& name, const std::string& place);

}  // namespace kvarena::storage
