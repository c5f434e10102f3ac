#include "harness/storage/context_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

std::vector<StorageTier> books_of(const std::vector<StoreTier>& tiers) {
  std::vector<StorageTier> books;
  for (const StoreTier& tier : tiers) books.push_back(tier.books);
  return books;
}

}  // namespace

ContextStore::ContextStore(std::vector<StoreTier> tiers, HierarchyPtr hierarchy, const std::filesystem::path& folder,
                           const Policy& policy, Maker maker)
    : tiers_(std::move(tiers)),
      hierarchy_(std::move(hierarchy)),
      books_(books_of(tiers_), policy),
      maker_(std::move(maker)),
      ledger_(std::make_shared<MemoryLedger>()) {
  const bool disk = std::ranges::any_of(tiers_, [](const StoreTier& tier) { return tier.tier == Tier::disk; });
  if (disk) {
    folder_ = std::make_unique<ContextFolder>(folder);
    for (const std::string& key : folder_->keys()) folder_->remove(key);
  }
}

std::optional<Choice> ContextStore::lookup(const std::string& key) const {
  const auto it = ids_.find(key);
  return it == ids_.end() ? std::nullopt : std::optional(books_.find(it->second)->at);
}

std::optional<Fetched> ContextStore::fetch(const std::string& key, double now, double importance) {
  auto fetched = get(key);
  if (fetched) use(key, now, importance);
  return fetched;
}

void ContextStore::use(const std::string& key, double now, double importance) {
  if (const auto it = ids_.find(key); it != ids_.end()) carry_out(books_.access(it->second, now, importance));
}

std::optional<Fetched> ContextStore::get(const std::string& key) {
  const auto it = ids_.find(key);
  if (it == ids_.end()) {
    ++counts_.misses;
    return std::nullopt;
  }
  const int64_t id = it->second;
  const Context& context = *books_.find(id);
  const int64_t tier = context.at.tier;
  auto bytes = read(held_.at(id), tier);
  if (!bytes || static_cast<int64_t>(bytes->size()) != context.bytes()) {
    ++counts_.damaged;
    forget(id);
    return std::nullopt;
  }
  ++counts_.hits[tier_of(tier)];
  return Fetched{.bytes = std::move(*bytes), .form = context.form(context.at), .tier = tier_of(tier)};
}

void ContextStore::put(const std::string& key, std::vector<Form> forms, double now, int64_t accesses) {
  if (const auto it = ids_.find(key); it != ids_.end()) forget(it->second);
  const int64_t id = next_id_++;
  ids_[key] = id;
  held_[id] = {.key = key, .block = nullptr};
  carry_out(
      books_.store({.id = id, .forms = std::move(forms), .accesses = accesses, .stored_at = now, .last_access = now}));
}

void ContextStore::profile(const std::string& key, std::vector<Form> forms) {
  books_.profile(ids_.at(key), std::move(forms));
}

void ContextStore::rearrange() { carry_out(books_.rearrange()); }

/// The books have made their moves already; a context whose bytes cannot follow is forgotten by both.
void ContextStore::carry_out(const std::vector<Move>& moves) {
  std::vector<int64_t> lost;
  for (const Move& step : moves) {
    if (std::ranges::find(lost, step.id) != lost.end()) continue;
    const Context* context = books_.find(step.id);
    if (!move(held_.at(step.id), *context, step)) lost.push_back(step.id);
  }
  for (const int64_t id : lost) forget(id);
}

/// False when the bytes are gone or the tier takes none.
bool ContextStore::move(Held& held, const Context& context, const Move& move) {
  const Form& form = context.form(*move.to);
  const bool same_form = move.from && move.from->form == move.to->form;
  std::optional<std::vector<std::byte>> bytes =
      same_form ? read(held, move.from->tier) : std::optional(maker_(held.key, form));
  if (!bytes) {
    ++counts_.damaged;
    return false;
  }
  KVARENA_ASSERT(static_cast<int64_t>(bytes->size()) == form.bytes,
                 fmt::format("{} bytes for a form of {}", bytes->size(), form.bytes));
  std::shared_ptr<Block> old = std::move(held.block);
  const bool leaves_disk = move.from && tier_of(move.from->tier) == Tier::disk && tier_of(move.to->tier) != Tier::disk;
  try {
    write(held, move.to->tier, *bytes);
  } catch (const UserError&) {
    ++counts_.refused_writes;
    return false;
  }
  if (leaves_disk) folder_->remove(held.key);
  return true;
}

std::optional<std::vector<std::byte>> ContextStore::read(const Held& held, int64_t tier) {
  if (tier_of(tier) == Tier::disk) {
    const auto start = std::chrono::steady_clock::now();
    auto bytes = folder_->get(held.key);
    const double seconds =
        tiers_[static_cast<size_t>(tier)].disk_link.seconds(bytes ? static_cast<int64_t>(bytes->size()) : 0, 1);
    std::this_thread::sleep_until(start + std::chrono::duration<double>(seconds));
    return bytes;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(held.block->bytes()));
  hierarchy_->load(tier_of(tier))
      .read(held.block, {{.at = 0, .memory = bytes.data(), .bytes = held.block->bytes()}})
      .wait();
  return bytes;
}

void ContextStore::write(Held& held, int64_t tier, const std::vector<std::byte>& bytes) {
  if (tier_of(tier) == Tier::disk) return folder_->put(held.key, bytes);
  const auto count = static_cast<int64_t>(bytes.size());
  held.block = hierarchy_->storage(tier_of(tier)).allocate(ledger_, count);
  hierarchy_->offload(tier_of(tier)).write(held.block, {{.at = 0, .memory = bytes.data(), .bytes = count}}).wait();
}

void ContextStore::erase_bytes(Held& held, int64_t tier) {
  held.block.reset();
  if (tier_of(tier) == Tier::disk) folder_->remove(held.key);
}

void ContextStore::forget(int64_t id) {
  Held& held = held_.at(id);
  erase_bytes(held, books_.find(id)->at.tier);
  if (folder_ != nullptr && folder_->contains(held.key)) folder_->remove(held.key);
  ids_.erase(held.key);
  held_.erase(id);
  (void)books_.remove(id);
}

}  // namespace kvarena::storage
