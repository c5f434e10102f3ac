#include "harness/engine/serving/load.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::serving {

size_t Load::add(std::deque<Turn> turns) {
  for (const Turn& turn : turns) {
    const auto request = static_cast<size_t>(turn.request);
    turns_of_.resize(std::max(turns_of_.size(), request + 1));
    turns_of_[request] = turns_.size();
  }
  turns_.push_back(std::move(turns));
  return turns_.size() - 1;
}

void Load::schedule(size_t turns, double now) {
  std::deque<Turn>& left = turns_[turns];
  if (left.empty()) return;
  due_.push({.at_s = now + left.front().think_s, .request = left.front().request});
  left.pop_front();
}

Load Load::of_sessions(const std::vector<SessionArrivals>& sessions) {
  Load load;
  size_t turns = 0;
  for (const SessionArrivals& session : sessions) {
    turns += session.turns.size();
    load.schedule(load.add(session.turns), session.start_s);
  }
  KVARENA_ASSERT(load.turns_of_.size() == turns, "sessions' requests are not numbered one after the other");
  return load;
}

Load Load::at_times(const std::vector<double>& arrivals_s) {
  KVARENA_ASSERT(std::ranges::is_sorted(arrivals_s), "arrival times fall");
  std::vector<SessionArrivals> sessions;
  for (const double time : arrivals_s) {
    sessions.push_back({.start_s = time, .turns = {{.request = static_cast<int64_t>(sessions.size())}}});
  }
  return of_sessions(sessions);
}

Load Load::of_clients(int64_t clients, int64_t requests, double think_s) {
  Load load;
  std::deque<Turn> turns;
  for (int64_t i = 0; i < requests; ++i) turns.push_back({.request = i, .think_s = i < clients ? 0 : think_s});
  const size_t shared = load.add(std::move(turns));
  for (int64_t i = 0; i < clients; ++i) load.schedule(shared, 0);
  return load;
}

std::optional<double> Load::next_time() const { return due_.empty() ? std::nullopt : std::optional(due_.top().at_s); }

int64_t Load::take() {
  const int64_t request = due_.top().request;
  due_.pop();
  return request;
}

void Load::left(int64_t request, double now) { schedule(turns_of_[static_cast<size_t>(request)], now); }

}  // namespace kvarena::serving
