#include "harness/storage/placement/tiered_contexts.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::storage {

TieredContexts::TieredContexts(std::vector<StorageTier> tiers, const Policy& policy)
    : tiers_(std::move(tiers)),
      policy_(&policy),
      used_(tiers_.size(), 0),
      peak_(tiers_.size(), 0),
      written_(tiers_.size(), 0) {
  check_tiers(tiers_);
}

const Context* TieredContexts::find(int64_t id) const {
  const auto it = std::ranges::find(contexts_, id, &Context::id);
  return it == contexts_.end() ? nullptr : &*it;
}

Context& TieredContexts::at(int64_t id) {
  const auto it = std::ranges::find(contexts_, id, &Context::id);
  KVARENA_ASSERT(it != contexts_.end(), fmt::format("no context {}", id));
  return *it;
}

std::vector<Move> TieredContexts::store(Context context) {
  std::vector<Context> one;
  one.push_back(std::move(context));
  return store_all(std::move(one));
}

std::vector<Move> TieredContexts::store_all(std::vector<Context> contexts) {
  for (Context& context : contexts) {
    KVARENA_ASSERT(find(context.id) == nullptr, fmt::format("context {} twice", context.id));
    KVARENA_ASSERT(!context.forms.empty(), fmt::format("context {} without a form", context.id));
    context.at = policy_->first(context, tiers_);
    contexts_.push_back(std::move(context));
    placed_.push_back(false);
  }
  std::vector<Context> plan = contexts_;
  settle(*policy_, tiers_, plan);
  return carry_out(plan);
}

std::vector<Move> TieredContexts::access_all(std::span<const int64_t> ids, double now) {
  std::vector<size_t> read;
  for (const int64_t id : ids) {
    Context& context = at(id);
    ++context.accesses;
    context.last_access = now;
    read.push_back(static_cast<size_t>(&context - contexts_.data()));
  }
  if (const int64_t after = policy_->rearranges_after(); after > 0 && ++reads_ >= after) return rearrange();
  const auto highest = [&](size_t i) { return first_tier_for(contexts_[i], contexts_[i].at.form, tiers_); };
  const auto rises = [&](size_t i) { return highest(i) < contexts_[i].at.tier; };
  if (!policy_->promotes_on_hit() || std::ranges::none_of(read, rises)) return {};
  std::vector<Context> plan = contexts_;
  for (const size_t i : read) {
    if (rises(i)) plan[i].at.tier = highest(i);
  }
  settle(*policy_, tiers_, plan);
  return carry_out(plan);
}

void TieredContexts::profile(int64_t id, std::vector<Form> forms) {
  Context& context = at(id);
  const Form& held = context.form(context.at);
  KVARENA_ASSERT(context.at.form < static_cast<int64_t>(forms.size()) &&
                     forms[static_cast<size_t>(context.at.form)].bytes == held.bytes &&
                     forms[static_cast<size_t>(context.at.form)].ready_bytes == held.ready_bytes,
                 fmt::format("the profile of context {} loses the form that is held", id));
  context.forms = std::move(forms);
}

std::vector<Move> TieredContexts::rearrange() {
  reads_ = 0;
  if (!policy_->rearranges()) return {};
  std::vector<Context> plan = contexts_;
  place_anew(*policy_, tiers_, plan);
  return carry_out(plan);
}

std::vector<Move> TieredContexts::remove(int64_t id) {
  const auto index = &at(id) - contexts_.data();
  const Context& gone = contexts_[static_cast<size_t>(index)];
  const Choice from = gone.at;
  hold(static_cast<size_t>(from.tier), -bytes_of(gone, from, tiers_));
  contexts_.erase(contexts_.begin() + index);
  placed_.erase(placed_.begin() + index);
  return {{.id = id, .from = from, .to = std::nullopt}};
}

void TieredContexts::hold(size_t tier, int64_t bytes) {
  used_[tier] += bytes;
  peak_[tier] = std::max(peak_[tier], used_[tier]);
  written_[tier] += std::max<int64_t>(bytes, 0);
  KVARENA_ASSERT(used_[tier] >= 0 && used_[tier] <= tiers_[tier].capacity,
                 fmt::format("tier {} holds {} of {} bytes", tiers_[tier].name, used_[tier], tiers_[tier].capacity));
}

bool TieredContexts::try_move(size_t index, const Choice& to, std::vector<Move>& moves) {
  Context& context = contexts_[index];
  const auto target = static_cast<size_t>(to.tier);
  const bool in_place = placed_[index] && context.at.tier == to.tier;
  const int64_t held = placed_[index] ? bytes_of(context, context.at, tiers_) : 0;
  const int64_t needed = bytes_of(context, to, tiers_) - (in_place ? held : 0);
  if (needed > tiers_[target].capacity - used_[target]) return false;
  Move move{.id = context.id, .from = std::nullopt, .to = to};
  if (placed_[index]) move.from = context.at;
  hold(target, needed);
  if (placed_[index] && !in_place) hold(static_cast<size_t>(context.at.tier), -held);
  context.at = to;
  placed_[index] = true;
  moves.push_back(move);
  return true;
}

/// Slower tiers give way first. Where contexts wait for each other's room in a circle, one of them goes by the last
/// tier, which always has room.
std::vector<Move> TieredContexts::carry_out(const std::vector<Context>& plan) {
  std::vector<size_t> pending;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (!placed_[i] || plan[i].at != contexts_[i].at) pending.push_back(i);
  }
  std::ranges::stable_sort(pending, [&](size_t a, size_t b) {
    if (placed_[a] != placed_[b]) return bool(placed_[a]);  // new contexts come last
    return contexts_[a].at.tier > contexts_[b].at.tier;
  });
  std::vector<Move> moves;
  const auto last = static_cast<int64_t>(tiers_.size()) - 1;
  while (!pending.empty()) {
    const auto before = pending.size();
    for (size_t k = 0; k < pending.size();) {
      const size_t index = pending[k];
      const bool waits = !placed_[index] && placed_[pending.front()];
      if (!waits && try_move(index, plan[index].at, moves)) {
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(k));
      } else {
        ++k;
      }
    }
    if (pending.size() < before) continue;
    const auto stuck =
        std::ranges::find_if(pending, [&](size_t i) { return placed_[i] && contexts_[i].at.tier < last; });
    KVARENA_ASSERT(stuck != pending.end(), "a plan that fits cannot be carried out");
    const bool moved = try_move(*stuck, {.form = plan[*stuck].at.form, .tier = last}, moves);
    KVARENA_ASSERT(moved, "the last tier is unlimited");
  }
  return moves;
}

}  // namespace kvarena::storage
