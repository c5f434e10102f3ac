// Requirements on all placement policies in long runs.

#include "tests/harness/storage/placement/random_contexts.h"
#include "tests/methods/eviction/plain_tiers.h"

namespace kvarena::storage {
namespace {

using testing::named;

/// A policy, and whether ready caches lie in front.
class EveryPolicy : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

/// Capacity at every instant is checked twice: the books throw when they are over it, and the moves are replayed here,
/// a copy first and its original gone after it.
TEST_P(EveryPolicy, NeverExceedsATierInTenThousandEvents) {
  const auto& [name, ready] = GetParam();
  const auto policy = named({{"name", name}});
  const RandomStream random(3, "ten thousand events");
  const double all = 40 * 4.5e9;
  std::vector<StorageTier> tiers = testing::three_tiers(all, 0.1, 0.2);
  std::vector<Context> newcomers;
  for (int64_t id = 0; id < 2000; ++id) newcomers.push_back(testing::random_context(id, random, 2, {0.8, 0.5, 0.2}));
  if (ready) testing::add_ready_tier(tiers, 0.15 * all, newcomers, random);
  TieredContexts books(tiers, *policy->placement());
  std::vector<int64_t> used(tiers.size(), 0);
  std::map<int64_t, std::pair<size_t, int64_t>> lies;  // tier and bytes of each context, by the moves alone
  const auto replay = [&](const std::vector<Move>& moves) {
    for (const Move& move : moves) {
      const auto before = lies.find(move.id);
      ASSERT_EQ(move.from.has_value(), before != lies.end());
      if (before != lies.end()) {
        ASSERT_EQ(static_cast<size_t>(move.from->tier), before->second.first);
      }
      std::pair<size_t, int64_t> next{0, 0};
      if (move.to) {
        const Context* context = books.find(move.id);
        const Form& form = context->form(*move.to);
        next = {static_cast<size_t>(move.to->tier), ready && move.to->tier == 0 ? form.ready_bytes : form.bytes};
        if (before != lies.end() && before->second.first == next.first) used[next.first] -= before->second.second;
        used[next.first] += next.second;
        ASSERT_LE(used[next.first], books.tiers()[next.first].capacity);
      }
      if (before != lies.end() && (!move.to || before->second.first != next.first)) {
        used[before->second.first] -= before->second.second;
      }
      if (move.to) {
        lies[move.id] = next;
      } else {
        lies.erase(move.id);
      }
    }
  };
  int64_t next_id = 0;
  for (int64_t event = 0; event < 10'000; ++event) {
    const auto draw = 1'000'000 + static_cast<uint64_t>(10 * event);
    const double kind = random.uniform(draw);
    const auto now = static_cast<double>(event);
    const auto& there = books.contexts();
    const int64_t some = there.empty() ? -1 : there[random.below(there.size(), draw + 1)].id;
    if (there.empty() || (kind < 0.1 && there.size() < 60)) {
      Context context = newcomers.at(static_cast<size_t>(next_id++));
      context.accesses = 1;
      context.stored_at = context.last_access = now;
      replay(books.store(context));
    } else if (kind < 0.9) {
      replay(books.access(some, now));
    } else if (kind < 0.93) {
      std::vector<Form> forms = books.find(some)->forms;  // drift: other qualities
      for (Form& form : forms) form.quality = std::min(1.0, form.quality * (0.7 + 0.6 * random.uniform(draw + 3)));
      books.profile(some, forms);
    } else if (kind < 0.95) {
      replay(books.rearrange());
    } else {
      replay(books.remove(some));
    }
    for (size_t t = 0; t < used.size(); ++t)
      ASSERT_EQ(used[t], books.used(static_cast<int64_t>(t))) << "event " << event;
    if (HasFatalFailure()) return;
  }
  for (size_t t = 0; t + 1 < tiers.size(); ++t)
    EXPECT_GT(books.peak(static_cast<int64_t>(t)), tiers[t].capacity * 8 / 10) << tiers[t].name;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const MethodEntry& entry : method_registry()) {
    if (entry.create()->placement() != nullptr) names.push_back(entry.info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy,
                         ::testing::Combine(::testing::ValuesIn(policy_names()), ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) ? "_ready" : "");
                         });

}  // namespace
}  // namespace kvarena::storage
