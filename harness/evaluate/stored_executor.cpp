#include "harness/evaluate/stored_executor.h"

#include <chrono>

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
      recent_(task.asked.size()),
      uses_(static_cast<int64_t>(task.asked.size())),
      engine_(model, requests(), task.facts) {}

serving::PassResult StoredExecutor::run(const serving::PassPlan& plan) {
  serving::PassResult result = engine_.run(plan);
  for (; !loaded_.empty(); loaded_.pop_front()) {
    library_->used(task_->asked[loaded_.front()].id, static_cast<double>(++uses_));
  }
  for (const serving::RequestProgress& progress : result.progress) {
    if (progress.finished) result.seconds += watch(static_cast<size_t>(progress.request));
  }
  return result;
}

std::vector<ServedRequest> StoredExecutor::requests() {
  std::vector<ServedRequest> list = served_requests(*task_, *point_, full_);
  for (size_t r = 0; r < list.size(); ++r) {
    list[r].begun = static_cast<int64_t>(task_->asked[point_->asks[r].context].tokens.size());
    list[r].begin = [this, r] { return begin(r); };
  }
  return list;
}

KvCache StoredExecutor::begin(size_t request) {
  const size_t context = point_->asks[request].context;
  stored::LoadedCache loaded = library_->load(task_->asked[context].id);
  loaded_.push_back(context);
  begun_[request] = {
      .tier = loaded.tier, .profiled = loaded.form.quality, .load_s = loaded.load_s, .restore_s = loaded.restore_s};
  return std::move(loaded.cache);
}

double StoredExecutor::watch(size_t request) {
  if (!threshold_) return 0;
  const Query& ask = point_->asks[request];
  const ContextWithQueries& context = task_->asked[ask.context];
  const Request& asked = request_of(*task_, ask);
  const double reached =
      task_->similarity(asked, engine_.answer(static_cast<int64_t>(request))->tokens, point_->full_answers[request]);
  std::vector<const Request*>& recent = recent_[ask.context];
  std::erase(recent, &asked);
  recent.push_back(&asked);
  if (static_cast<int64_t>(recent.size()) > task_->contexts.drift_answers) recent.erase(recent.begin());
  drift_.note(context.id, reached, begun_[request].profiled);
  if (!drift_.drifted(context.id)) return 0;
  const auto start = SteadyClock::now();
  library_->reprofile(context.id, profile(*model_, *task_, *point_, ask.context, recent));
  const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  library_->rearrange();
  drift_.forget(context.id);
  reprofiled_.push_back(request);
  return seconds;
}

}  // namespace kvarena::evaluate
