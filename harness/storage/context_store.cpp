#include "harness/storage/context_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena::storage {
namespace {

std::vector<StorageTier> books_of(const std::vector<StoreTier>& tiers) {
  std::vector<StorageTier> books;
  for (const StoreTier& tier : tiers) books.push_back(tier.books);
  return books;
}

/// Lets go of a lock that is held, for as long as this is there.
class Released {
 public:
  explicit Released(std::mutex* lock) : lock_(lock) {
    if (lock_ != nullptr) lock_->unlock();
  }
  ~Released() {
    if (lock_ != nullptr) lock_->lock();
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  std::mutex* lock_;
};

/// Begins what brings a reading's bytes; gives what waits until it has.
using Begin = std::function<std::function<void()>(std::function<void()> bring)>;

/// Bytes of an object that are read, and checked, before they are taken.
std::function<bool(const Reading::Take&)> checked(std::shared_ptr<const StoredObject> object, int64_t bytes,
                                                  const Begin& begin) {
  const auto whole = std::make_shared<bool>(false);
  const auto arrive =
      begin([object, whole, bytes] { *whole = std::ssize(object->bytes()) == bytes && object->whole(); });
  return [object, whole, arrive](const Reading::Take& take) {
    arrive();
    if (*whole) take(object->bytes());
    return *whole;
  };
}

/// Bytes of a block in memory that `ledger` counts, from when their transfer begins until they were taken.
std::function<bool(const Reading::Take&)> copied(const std::shared_ptr<const Block>& block, const LedgerPtr& ledger,
                                                 const Begin& begin) {
  const auto copy = std::make_shared<Buffer>();
  const auto arrive = begin([copy, block, ledger] {
    *copy = Buffer(ledger, Tier::device, block->bytes());
    block->read(0, {copy->data(), static_cast<size_t>(copy->bytes())});
  });
  return [copy, arrive](const Reading::Take& take) {
    arrive();
    const Buffer bytes = std::move(*copy);
    take({bytes.data(), static_cast<size_t>(bytes.bytes())});
    return true;
  };
}

}  // namespace

ContextStore::ContextStore(std::vector<StoreTier> tiers, HierarchyPtr hierarchy, const std::filesystem::path& folder,
                           const Policy& policy, Maker maker, Readier readier)
    : tiers_(std::move(tiers)),
      hierarchy_(std::move(hierarchy)),
      books_(books_of(tiers_), policy),
      maker_(std::move(maker)),
      readier_(std::move(readier)),
      ledger_(std::make_shared<MemoryLedger>()) {
  const auto disk = std::ranges::find(tiers_, Tier::disk, &StoreTier::tier);
  if (disk != tiers_.end()) {
    folder_ = std::make_unique<ContextFolder>(folder);
    disk_ = std::make_unique<Link>(disk->disk_link);
    for (const std::string& key : folder_->keys()) folder_->remove(key);
  }
}

const Context* ContextStore::find(const std::string& key) const {
  const auto it = ids_.find(key);
  return it == ids_.end() ? nullptr : books_.find(it->second);
}

std::optional<Fetched> ContextStore::fetch(const std::string& key, double now) {
  auto fetched = get(key);
  if (fetched) use(key, now);
  return fetched;
}

void ContextStore::use_all(std::span<const std::string> keys, double now) {
  std::vector<int64_t> ids;
  for (const std::string& key : keys) {
    if (const auto it = ids_.find(key); it != ids_.end()) ids.push_back(it->second);
  }
  if (!ids.empty()) carry_out(books_.access_all(ids, now), ids);
}

std::optional<Reading> ContextStore::ask(const std::string& key) {
  const auto it = ids_.find(key);
  if (it == ids_.end() || !held_.at(it->second).there) {
    ++counts_.misses;
    return std::nullopt;
  }
  auto reading = open(held_.at(it->second));
  if (reading) return reading;
  ++counts_.damaged;
  forget(it->second);
  return std::nullopt;
}

void ContextStore::came(const std::string& key, const Reading& reading, bool whole) {
  if (whole) {
    ++counts_.hits[reading.tier];
    return;
  }
  ++counts_.damaged;
  if (reading.tier == Tier::disk) folder_->forget_damaged(key);
  if (const auto it = ids_.find(key); it != ids_.end()) forget(it->second);
}

std::optional<Fetched> ContextStore::get(const std::string& key) {
  const std::optional<Reading> reading = ask(key);
  if (!reading) return std::nullopt;
  Fetched fetched{.bytes = {}, .form = reading->form, .tier = reading->tier};
  const bool whole =
      reading->bytes([&](std::span<const std::byte> bytes) { fetched.bytes.assign(bytes.begin(), bytes.end()); });
  came(key, *reading, whole);
  return whole ? std::optional(std::move(fetched)) : std::nullopt;
}

void ContextStore::put_all(std::vector<Newcomer> newcomers, double now) {
  std::vector<Context> contexts;
  for (Newcomer& one : newcomers) {
    if (const auto it = ids_.find(one.key); it != ids_.end()) forget(it->second);
    const int64_t id = next_id_++;
    ids_[one.key] = id;
    held_[id] = {.key = one.key};
    contexts.push_back({.id = id,
                        .forms = std::move(one.forms),
                        .accesses = one.accesses,
                        .stored_at = now,
                        .last_access = now,
                        .importance = one.importance});
  }
  carry_out(books_.store_all(std::move(contexts)));
}

void ContextStore::profile(const std::string& key, std::vector<Form> forms) {
  books_.profile(ids_.at(key), std::move(forms));
}

void ContextStore::rearrange() { carry_out(books_.rearrange()); }

/// The books have made their moves already; a context whose bytes cannot follow is forgotten by both. An index that the
/// disk refuses is written with the next moves: this store knows what lies there.
void ContextStore::carry_out(const std::vector<Move>& moves, std::span<const int64_t> used) {
  const auto all = [&] {
    for (const Move& step : moves) {
      if (!held_.contains(step.id)) continue;  // lost in an earlier step, or found damaged while others moved
      const bool over_link = std::ranges::find(used, step.id) == used.end();
      if (!move(step, over_link) && held_.contains(step.id)) forget(step.id);
    }
  };
  if (folder_ == nullptr) return all();
  if (!folder_->together(all)) ++counts_.refused_writes;
}

/// False when the bytes are gone or the tier takes none.
bool ContextStore::move(const Move& move, bool over_link) {
  const Held before = held_.at(move.id);
  const Form form = books_.find(move.id)->form(*move.to);
  const bool same_form = move.from && move.from->form == move.to->form;
  const std::optional<std::vector<std::byte>> bytes =
      same_form ? read(before, over_link) : std::optional(make(move, form, over_link));
  if (!held_.contains(move.id)) return true;  // found damaged on its way
  if (!bytes) {
    ++counts_.damaged;
    return false;
  }
  KVARENA_ASSERT(std::ssize(*bytes) == form.bytes, fmt::format("{} bytes for a form of {}", bytes->size(), form.bytes));
  Held after{.key = before.key, .there = true, .form = form, .tier = tier_of(move.to->tier)};
  try {
    write(*bytes, move.to->tier, after);
  } catch (const UserError&) {
    ++counts_.refused_writes;
    return false;
  }
  const auto held = held_.find(move.id);
  if (held == held_.end()) return true;
  if (before.tier == Tier::disk && after.tier != Tier::disk) folder_->remove(before.key);
  held->second = std::move(after);
  return true;
}

/// Nothing when a file is gone. Bytes of several contexts come beside each other where their links differ. Ready
/// contexts, bytes on the device and those that their request has read lie where they are taken: nothing moves.
std::optional<Reading> ContextStore::open(const Held& held, bool over_link) {
  Reading reading{.form = held.form, .tier = held.tier, .ready = held.ready, .bytes = {}};
  const Begin begin = [&](std::function<void()> bring) -> std::function<void()> {
    if (!over_link) return bring;
    const auto way = std::make_shared<Transfer>(link_from(held.tier).carry(held.form.bytes, 1, std::move(bring)));
    return [way] { way->wait(); };
  };
  if (held.ready) {
    reading.bytes = [ready = held.ready](const Reading::Take& take) {
      take(ready->stored());
      return true;
    };
  } else if (held.tier == Tier::disk) {
    std::shared_ptr<const StoredObject> object = folder_->open(held.key);
    if (object == nullptr) return std::nullopt;
    reading.bytes = checked(std::move(object), held.form.bytes, begin);
  } else if ((!over_link || held.tier == Tier::device) && !held.block->memory().empty()) {
    reading.bytes = [block = held.block](const Reading::Take& take) {
      take(block->memory());
      return true;
    };
  } else {
    reading.bytes = copied(held.block, ledger_, begin);
  }
  return reading;
}

std::optional<std::vector<std::byte>> ContextStore::read(const Held& held, bool over_link) {
  const std::optional<Reading> reading = open(held, over_link);
  if (!reading) return std::nullopt;
  std::vector<std::byte> copy;
  bool whole = false;
  {
    const Released released(callers_);
    whole = reading->bytes([&](std::span<const std::byte> bytes) { copy.assign(bytes.begin(), bytes.end()); });
  }
  if (!whole && held.tier == Tier::disk) folder_->forget_damaged(held.key);
  return whole ? std::optional(std::move(copy)) : std::nullopt;
}

std::vector<std::byte> ContextStore::make(const Move& move, const Form& form, bool over_link) {
  const Held& held = held_.at(move.id);
  const std::function<std::vector<std::byte>()> making = maker_(held.key, form);
  Transfer way;
  if (move.from) {
    const bool here = move.from->form == 0, carried = !here || (over_link && !held.ready);
    const int64_t whole = books_.find(move.id)->forms.front().bytes;
    // The maker reads an original of its own: the link is busy for the first form's time, and copies nothing.
    if (carried) way = link_from(here ? held.tier : tiers_.back().tier).carry(whole, 1, [] {});
  }
  const Released released(callers_);
  way.wait();
  return making();
}

void ContextStore::write(const std::vector<std::byte>& bytes, int64_t tier, Held& to) {
  if (to.tier == Tier::disk) return folder_->put(to.key, bytes);
  if (tiers_[static_cast<size_t>(tier)].books.ready) {
    const Released released(callers_);
    to.ready = readier_(to.form, bytes);
    KVARENA_ASSERT(to.ready->bytes() == to.form.ready_bytes,
                   fmt::format("{} bytes ready for a form of {}", to.ready->bytes(), to.form.ready_bytes));
    return;
  }
  const auto count = std::ssize(bytes);
  to.block = hierarchy_->storage(to.tier).allocate(ledger_, count);
  Transfer way = hierarchy_->offload(to.tier).write(to.block, {{.at = 0, .memory = bytes.data(), .bytes = count}});
  const Released released(callers_);
  way.wait();
}

void ContextStore::forget(int64_t id) {
  const std::string key = held_.at(id).key;
  if (folder_ != nullptr) folder_->remove(key);
  ids_.erase(key);
  held_.erase(id);
  (void)books_.remove(id);
}

}  // namespace kvarena::storage
