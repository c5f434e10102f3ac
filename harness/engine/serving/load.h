#pragma once
// Arrivals of requests: at given times whatever the server does (open loop), or each client after its last answer
// (closed loop).

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace kvarena::serving {

/// Requests in order of arrival, numbered from 0.
class Load {
 public:
  /// Open loop: request i at arrivals_s[i], which must not fall.
  [[nodiscard]] static Load at_times(std::vector<double> arrivals_s);
  /// Closed loop: `clients` start at 0, each sends its next request `think_s` after an answer, `requests` in all.
  [[nodiscard]] static Load of_clients(int64_t clients, int64_t requests, double think_s = 0);

  /// Tells the time of the next request, nothing when none is known to come (more may, after answers).
  [[nodiscard]] std::optional<double> next_time() const;
  /// Takes the next request; returns its number.
  int64_t take();
  /// Notes that a request left, answered or not.
  void left(double now);
  /// Counts all requests that will ever come.
  [[nodiscard]] int64_t requests() const { return requests_; }

 private:
  Load() = default;
  std::priority_queue<double, std::vector<double>, std::greater<>> times_;
  int64_t requests_ = 0;
  int64_t scheduled_ = 0;  // requests whose time is known
  int64_t taken_ = 0;
  std::optional<double> think_s_;  // closed loop
};

}  // namespace kvarena::serving
