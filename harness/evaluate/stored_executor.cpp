#include "harness/evaluate/stored_executor.h"

#include <algorithm>
#include <chrono>

#include "harness/core/seconds_since.h"

namespace kvarena::evaluate {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// The drift at which a context is profiled anew; nothing where the policy chooses among no forms.
std::optional<double> drift_threshold_of(const storage::Policy& policy, const stored::ContextLibrary& library) {
  return policy.chooses_forms() && library.forms().size() > 1 ? policy.drift_threshold() : std::nullopt;
}

}  // namespace

StoredExecutor::StoredExecutor(Transformer& model, const StoredContextsTask& task, const StoredPoint& point,
                               stored::ContextLibrary& library, const storage::Policy& policy)
    : model_(&model),
      task_(&task),
      point_(&point),
      library_(&library),
      threshold_(drift_threshold_of(policy, library)),
      drift_(threshold_.value_or(0), static_cast<size_t>(task.contexts.drift_answers)),
      begun_(point.asks.size()),
      coming_(point.asks.size()),
      recent_(task.asked.size()),
      uses_(static_cast<int64_t>(task.asked.size())),
      engine_(model, requests(), task.facts) {
  library_->store().release_while_moving(&library_lock_);
}

StoredExecutor::~StoredExecutor() {
  if (moving_.valid()) moving_.wait();
  library_->store().release_while_moving(nullptr);
}

serving::PassResult StoredExecutor::run(const serving::PassPlan& plan) {
  const auto start = SteadyClock::now();
  const std::vector<PassMember*> beside = profiling_members(plan);
  const auto passing = SteadyClock::now();
  serving::PassResult result = engine_.run(plan, beside);
  const double passed = seconds_since(passing);
  const auto seconds = [&] { return result.seconds + seconds_since(start) - passed; };
  for (; !loaded_.empty(); loaded_.pop_front()) {
    beside_passes([this, &context = task_->asked[loaded_.front()], now = ++uses_] {
      library_->used(context.id, static_cast<double>(now));
    });
  }
  if (profiling_ && !beside.empty()) profiling_->passed();
  take_profiling(plan.at_s + seconds());
  for (const serving::RequestProgress& progress : result.progress) {
    if (progress.finished) watch(static_cast<size_t>(progress.request));
  }
  result.seconds = seconds();
  return result;
}

double StoredExecutor::idle(const serving::PassPlan& empty, double seconds) {
  if (drifted_.empty()) return 0;
  const auto start = SteadyClock::now();
  const std::vector<PassMember*> members = profiling_members(empty);
  if (!profiling_) {
    original_.wait_for(std::chrono::duration<double>(seconds));
  } else if (members.empty()) {
    profiling_->wait(seconds);
  } else {
    run_pass(*model_, members);
    profiling_->passed();
  }
  const double took = seconds_since(start);
  take_profiling(empty.at_s + took);
  return took;
}

std::vector<ServedRequest> StoredExecutor::requests() {
  std::vector<ServedRequest> list = served_requests(*task_, *point_, full_);
  for (size_t r = 0; r < list.size(); ++r) {
    list[r].begun = static_cast<int64_t>(task_->asked[point_->asks[r].context].tokens.size());
    list[r].begin = [this, r] { return begin(r); };
    list[r].coming_bytes = [this, r] { return coming_[r].load(); };
  }
  return list;
}

/// The load takes the time that it takes on a thread of its own, and is the run's from the pass that asked for it on.
/// A cache that is lost is computed on the thread of the passes.
std::future<BroughtPrompt> StoredExecutor::begin(size_t request) {
  const std::string& context = task_->asked[point_->asks[request].context].id;
  const auto start = SteadyClock::now();
  return std::async(std::launch::async, [this, request, &context, start] {
    const auto locked = [this](const auto& work) {
      const std::lock_guard lock(library_lock_);
      return work();
    };
    const stored::ContextLibrary::Bring bring = locked([&] { return library_->ask(context); });
    coming_[request] = bring.bytes;
    auto brought = std::make_shared<stored::BroughtCache>(bring());
    coming_[request] = brought->cache ? brought->cache->cache.ledger->peak(Tier::device) : 0;
    const auto take = [this, &context, brought] { return library_->came(context, std::move(*brought)); };
    auto loaded = std::make_shared<std::optional<stored::LoadedCache>>();
    if (brought->cache) *loaded = locked(take);
    const double seconds = seconds_since(start);
    return BroughtPrompt{.cache =
                             [this, request, locked, take, loaded] {
                               if (!*loaded) *loaded = locked(take);
                               loaded_.push_back(point_->asks[request].context);
                               begun_[request] = {.tiers = std::move((*loaded)->tiers),
                                                  .profiled = (*loaded)->form.quality,
                                                  .load_s = (*loaded)->load_s,
                                                  .restore_s = (*loaded)->restore_s};
                               return std::move((*loaded)->cache);
                             },
                         .seconds = seconds};
  });
}

void StoredExecutor::beside_passes(std::function<void()> work) {
  moving_ = std::async(std::launch::async, [this, before = std::move(moving_), work = std::move(work)]() mutable {
    if (before.valid()) before.get();
    const std::lock_guard lock(library_lock_);
    work();
  });
}

void StoredExecutor::finish_moves() {
  if (moving_.valid()) moving_.get();
}

void StoredExecutor::watch(size_t request) {
  if (!threshold_) return;
  const Query& ask = point_->asks[request];
  const ContextWithQueries& context = task_->asked[ask.context];
  const Request& asked = request_of(*task_, ask);
  const double reached =
      task_->similarity(asked, engine_.answer(static_cast<int64_t>(request))->tokens, point_->full_answers[request]);
  std::vector<const Request*>& recent = recent_[ask.context];
  std::erase(recent, &asked);
  recent.push_back(&asked);
  if (static_cast<int64_t>(recent.size()) > task_->contexts.drift_answers) recent.erase(recent.begin());
  if (std::ranges::find(drifted_, ask.context) != drifted_.end()) return;
  drift_.note(context.id, reached, begun_[request].profiled);
  if (!drift_.drifted(context.id)) return;
  drift_.forget(context.id);
  drifted_.push_back(ask.context);
}

std::vector<PassMember*> StoredExecutor::profiling_members(const serving::PassPlan& plan) {
  if (drifted_.empty()) return {};
  const size_t context = drifted_.front();
  if (!profiling_ && !original_.valid()) {
    profiling_since_s_ = plan.at_s;
    original_ = std::async(std::launch::async, [this, context] {
      stored::stand_behind_passes();
      return point_->set->originals->read(context);
    });
  }
  if (!profiling_) {
    if (original_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    profiling_ = start_profile(*model_, *task_, *point_->set, context, original_.get(), recent_[context]);
  }
  const int64_t most = task_->contexts.profiling_answers.value_or(plan.room.requests);
  return profiling_->next(
      {.answers = std::min(plan.room.requests, most), .tokens = plan.room.tokens, .bytes = plan.room.bytes});
}

void StoredExecutor::take_profiling(double now) {
  if (!profiling_ || !profiling_->finished()) return;
  const size_t context = drifted_.front();
  std::vector<storage::Form> profile = point_->set->profiles[context];  // sizes and times are as they were
  for (size_t form = 0; form < profile.size(); ++form) profile[form].quality = profiling_->profile()[form].quality;
  beside_passes([this, &id = task_->asked[context].id, profile = std::move(profile)]() mutable {
    library_->reprofile(id, std::move(profile));
    library_->rearrange();
  });
  profilings_.push_back({.context = context, .began_s = profiling_since_s_, .ended_s = now});
  profiling_.reset();
  drifted_.pop_front();
}

}  // namespace kvarena::evaluate
