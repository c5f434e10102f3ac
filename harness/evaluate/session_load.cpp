#include "harness/evaluate/session_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "datasets/arrivals.h"
#include "harness/core/error.h"

namespace kvarena::evaluate {
namespace {

constexpr double kMilliseconds = 1e3;

/// Numbers of requests by session, in the order in which sessions have their first one.
std::vector<std::vector<size_t>> turns_of(const ServingPoint& point) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<size_t>> sessions;
  for (size_t i = 0; i < point.asked.size(); ++i) {
    const datasets::Sample& sample = *point.asked[i].sample;
    if (!sample.recorded) {
      fail({.place = "serving.arrivals",
            .found = fmt::format("sample {}, which is no turn of a recorded session", sample.id),
            .expected = "a workload of sessions for \"sessions\"",
            .action = "`kvarena workloads` lists those of the family traces"});
    }
    const auto [place, fresh] = places.try_emplace(sample.recorded->session, sessions.size());
    if (fresh) sessions.emplace_back();
    sessions[place->second].push_back(i);
  }
  return sessions;
}

/// When sessions begin: at the times that their first turns came at, moved to 0 and stretched to `rate` on average, or
/// at random where one has none.
std::vector<double> starts_of(const ServingPoint& point, const std::vector<std::vector<size_t>>& sessions,
                              double rate) {
  std::vector<double> starts;
  for (const std::vector<size_t>& turns : sessions) {
    const datasets::RecordedTurn& first = *point.asked[turns.front()].sample->recorded;
    if (!first.at_s) return datasets::poisson_arrivals(rate, sessions.size(), point.seed + point.point);
    starts.push_back(*first.at_s);
  }
  const auto [least, most] = std::ranges::minmax(starts);
  const double span = most - least;
  const double stretch = span > 0 ? static_cast<double>(starts.size() - 1) / rate / span : 0;
  for (double& start : starts) start = (start - least) * stretch;
  return starts;
}

}  // namespace

std::vector<serving::SessionArrivals> recorded_sessions(const ServingPoint& point, double rate) {
  const std::vector<std::vector<size_t>> turns = turns_of(point);
  const double share = static_cast<double>(turns.size()) / static_cast<double>(point.asked.size());
  const std::vector<double> starts = starts_of(point, turns, rate * share);
  std::vector<serving::SessionArrivals> sessions;
  for (size_t i = 0; i < turns.size(); ++i) {
    serving::SessionArrivals& session =
        sessions.emplace_back(serving::SessionArrivals{.start_s = starts[i], .turns = {}});
    for (const size_t request : turns[i]) {
      const double think_s = session.turns.empty() ? 0 : point.asked[request].sample->recorded->think_s;
      session.turns.push_back({.request = static_cast<int64_t>(request), .think_s = think_s * point.settings.think});
    }
  }
  return sessions;
}

void add_turns(results::SampleResult& result, const ServingPoint& point, const serving::ServingRun& run) {
  if (point.settings.arrivals != "sessions") return;
  std::vector<int64_t> answered;
  std::vector<double> waited_ms;
  for (const std::vector<size_t>& turns : turns_of(point)) {
    answered.resize(std::max(answered.size(), turns.size()));
    waited_ms.resize(answered.size());
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      const serving::Timeline& request = run.requests[turns[turn]];
      if (request.outcome != serving::Outcome::answered) continue;
      ++answered[turn];
      waited_ms[turn] += (request.token_s.front() - request.arrival_s) * kMilliseconds;
    }
  }
  for (size_t turn = 0; turn < answered.size(); ++turn) {
    if (answered[turn] > 0) waited_ms[turn] /= static_cast<double>(answered[turn]);
  }
  nlohmann::json activity = nlohmann::json::parse(result.activity_json);
  activity["answered_by_turn"] = answered;
  activity["time_to_first_token_ms_by_turn"] = waited_ms;
  result.activity_json = activity.dump();
}

}  // namespace kvarena::evaluate
