#include "harness/engine/stored/profile_run.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <numeric>

#include "harness/core/error.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena::stored {

void stand_behind_passes() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19); }

ProfileRun::ProfileRun(Transformer& model, std::shared_ptr<const Prefill> context, std::span<const CacheForm> forms,
                       std::vector<Query> queries, AnswerQuality quality)
    : model_(&model),
      context_(std::move(context)),
      forms_(forms),
      queries_(std::move(queries)),
      quality_(std::move(quality)) {
  if (!queries_.empty()) answers_.emplace(model, context_->model, context_->tokens, context_->cache, queries_);
  make_next();
}

void ProfileRun::make_next() {
  if (profile_.size() == forms_.size()) return;
  making_ = std::async(std::launch::async, [this, &form = forms_[profile_.size()]] {
    stand_behind_passes();
    return make(form);
  });
}

ProfileRun::Made ProfileRun::make(const CacheForm& form) const {
  const std::vector<std::byte> bytes = store_form(*context_, form);
  Made made{.bytes = std::ssize(bytes), .cache = std::nullopt};
  if (form.method && !queries_.empty()) made.cache = restore_cache(*model_, *context_->model, form.method.get(), bytes);
  return made;
}

void ProfileRun::fails(size_t form, const char* reason) const {
  throw UserError(fmt::format("form \"{}\": {}", forms_[form].label, reason));
}

void ProfileRun::begin_answers() {
  while (!answers_ && making_.valid() && making_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    const CacheForm& form = forms_[profile_.size()];
    Made made;
    try {
      made = making_.get();
    } catch (const UserError& error) {
      fails(profile_.size(), error.what());
    }
    profile_.push_back({.method = form.label, .keep = form.keep, .bytes = made.bytes});
    make_next();
    if (!made.cache) continue;
    cache_ = std::move(made.cache);
    answers_.emplace(*model_, context_->model, context_->tokens, *cache_, queries_);
  }
}

std::vector<PassMember*> ProfileRun::next(const AnswerRoom& room) {
  begin_answers();
  return answers_ ? answers_->next(room) : std::vector<PassMember*>{};
}

void ProfileRun::passed() {
  if (!answers_) return;
  try {
    answers_->passed();
  } catch (const UserError& error) {
    if (!cache_) throw;
    fails(profile_.size() - 1, error.what());
  }
  if (!answers_->finished()) return;
  if (!cache_) {
    full_ = answers_->answers();
  } else {
    double sum = 0;
    for (size_t i = 0; i < queries_.size(); ++i) sum += quality_(i, answers_->answers()[i], full_[i]);
    profile_.back().quality = sum / static_cast<double>(queries_.size());
  }
  answers_.reset();
  cache_.reset();
}

void ProfileRun::wait(double seconds) {
  if (!answers_ && making_.valid()) making_.wait_for(std::chrono::duration<double>(seconds));
}

}  // namespace kvarena::stored
