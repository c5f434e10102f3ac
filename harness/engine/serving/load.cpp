#include "harness/engine/serving/load.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::serving {

Load Load::at_times(std::vector<double> arrivals_s) {
  KVARENA_ASSERT(std::ranges::is_sorted(arrivals_s), "arrival times fall");
  Load load;
  load.requests_ = load.scheduled_ = static_cast<int64_t>(arrivals_s.size());
  for (const double time : arrivals_s) load.times_.push(time);
  return load;
}

Load Load::of_clients(int64_t clients, int64_t requests, double think_s) {
  Load load;
  load.requests_ = requests;
  load.scheduled_ = std::min(clients, requests);
  load.think_s_ = think_s;
  for (int64_t i = 0; i < load.scheduled_; ++i) load.times_.push(0);
  return load;
}

std::optional<double> Load::next_time() const { return times_.empty() ? std::nullopt : std::optional(times_.top()); }

int64_t Load::take() {
  times_.pop();
  return taken_++;
}

void Load::left(double now) {
  if (!think_s_ || scheduled_ >= requests_) return;
  times_.push(now + *think_s_);
  ++scheduled_;
}

}  // namespace kvarena::serving
