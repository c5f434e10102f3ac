#pragma once
// Arrivals of requests: sessions come at given times whatever the server does (open loop), and within a session each
// request follows the answer to the one before (closed loop).

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace kvarena::serving {

/// A request of a session.
struct Turn {
  int64_t request = 0;
  double think_s = 0;  // until it is sent, from the answer before it in its session; of the first, from the start
};

/// Requests one after another, the first of them at a given time.
struct SessionArrivals {
  double start_s = 0;
  std::deque<Turn> turns;
};

/// Requests 0 .. n-1, each of one session.
class Load {
 public:
  [[nodiscard]] static Load of_sessions(const std::vector<SessionArrivals>& sessions);
  /// Sessions of one request: request i at arrivals_s[i], which must not fall.
  [[nodiscard]] static Load at_times(const std::vector<double>& arrivals_s);
  /// `clients` sessions that start at 0 and share their requests: whoever has an answer sends the next one `think_s`
  /// later, `requests` in all.
  [[nodiscard]] static Load of_clients(int64_t clients, int64_t requests, double think_s = 0);

  /// Tells the time of the next request, nothing when none is known to come (more may, after answers).
  [[nodiscard]] std::optional<double> next_time() const;
  /// Takes the next request; returns its number. Of requests due together the lowest number comes first.
  int64_t take();
  /// Notes that a request left, answered or not: its session goes on.
  void left(int64_t request, double now);
  /// Counts all requests that will ever come.
  [[nodiscard]] int64_t requests() const { return std::ssize(turns_of_); }

 private:
  struct Due {
    double at_s = 0;
    int64_t request = 0;
    auto operator<=>(const Due&) const = default;
  };

  Load() = default;
  /// Adds turns that sessions are to take, and returns their place.
  size_t add(std::deque<Turn> turns);
  /// Has the next of these turns come its think time after `now`, if there is one left.
  void schedule(size_t turns, double now);

  std::vector<std::deque<Turn>> turns_;  // that have not been scheduled, by session; clients share one list
  std::vector<size_t> turns_of_;         // by request, the list that it came from
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace kvarena::serving
