#pragma once
// Caches of many contexts over tiers: carries out a placement policy's decisions with real bytes.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/storage/context_folder.h"
#include "harness/storage/hierarchy.h"
#include "harness/storage/link_spec.h"
#include "harness/storage/placement/tiered_contexts.h"

namespace kvarena::storage {

/// A context on a tier of ready caches: requests begin with it as it is. Different threads may use it at a time.
class ReadyContext {
 public:
  virtual ~ReadyContext() = default;
  [[nodiscard]] virtual int64_t bytes() const = 0;  // its form's ready_bytes
  /// The stored bytes that it was made of.
  [[nodiscard]] virtual std::vector<std::byte> stored() const = 0;
};

/// One tier of the store. Bytes of a tier in memory lie in the hierarchy's storage and come over its links, disk bytes
/// in the folder; ready caches lie where they are made.
struct StoreTier {
  Tier tier = Tier::host;
  StorageTier books;   // capacity and rate as policies see them
  LinkSpec disk_link;  // disk tier: least time of reads, one after another; a spec that emulates nothing adds none
};

/// A stored context's bytes, on their way since they were asked for. The store may move the context meanwhile, and must
/// outlive this.
struct Reading {
  using Take = std::function<void(std::span<const std::byte>)>;
  Form form;
  Tier tier = Tier::host;                     // tier from which they come
  std::shared_ptr<const ReadyContext> ready;  // of a tier of ready caches: nothing has to come
  /// Waits for the bytes, then gives them to `take`: where they lie, or where their link has copied them; false,
  /// without that, when they are damaged. Any thread may call it, once. Throws what the tier or `take` throws.
  std::function<bool(const Take& take)> bytes;
};

/// Result of a fetch.
struct Fetched {
  std::vector<std::byte> bytes;
  Form form;
  Tier tier = Tier::host;  // tier from which the bytes came
};

/// A context that comes to the store.
struct Newcomer {
  std::string key;
  std::vector<Form> forms;
  int64_t accesses = 1;   // uses so far, this one counted
  double importance = 1;  // share of its tokens that requests need
};

struct StoreCounts {
  std::map<Tier, int64_t> hits;
  int64_t misses = 0;          // never stored
  int64_t damaged = 0;         // stored, but the bytes were damaged or gone
  int64_t refused_writes = 0;  // a tier took no more than it had; the context was forgotten, or an index is old
};

/// For one thread at a time, but for what ask() gives. Links carry what is asked for, what is written to tiers in
/// memory, and what moves from any tier, but for contexts that were just used: their requests have read them. Another
/// form is made of the first one, which comes from where it is held, else from the last tier, where it is taken to lie
/// beside. The policy and the hierarchy must outlive it.
class ContextStore {
 public:
  /// Gives what makes the bytes of a context in a form, from the request that computed it or from its full cache.
  /// Called when a context is stored and when a policy gives it another form; what it gives is called without any lock.
  using Maker = std::function<std::function<std::vector<std::byte>()>(const std::string& key, const Form& form)>;
  /// Makes of a context's bytes what a tier of ready caches holds. Called without any lock.
  using Readier =
      std::function<std::shared_ptr<const ReadyContext>(const Form& form, std::span<const std::byte> bytes)>;

  /// `folder` is the disk tier's; empty when there is none. Objects that an earlier run left in it are not used: their
  /// forms and uses are not known. `readier` is for a tier of ready caches. Throws UserError when tiers do not pass
  /// check_tiers() or another run uses the folder.
  ContextStore(std::vector<StoreTier> tiers, HierarchyPtr hierarchy, const std::filesystem::path& folder,
               const Policy& policy, Maker maker, Readier readier = {});

  /// Lets go of `lock`, which every caller then holds, while bytes that move are read, made, or on their way to a tier
  /// in memory: others are asked for meanwhile, and that context too, which lies where it lay until they are there. One
  /// thread at a time may move contexts. Null: nobody else calls.
  void release_while_moving(std::mutex* lock) { callers_ = lock; }

  /// A context as it is placed, null when it is not; until contexts are put, used, profiled or removed.
  [[nodiscard]] const Context* find(const std::string& key) const;
  /// Bytes of a context, counted as a use. Nothing when it is not stored, or when the stored bytes are damaged or gone:
  /// the caller computes it and puts it again.
  [[nodiscard]] std::optional<Fetched> fetch(const std::string& key, double now);
  /// The two halves of fetch(), for a caller that answers before it moves contexts: get() gives the bytes, counted as a
  /// hit or a miss; use() may promote the context and demote others, and ignores one that is gone by then.
  [[nodiscard]] std::optional<Fetched> get(const std::string& key);
  void use(const std::string& key, double now) { use_all({&key, 1}, now); }
  /// One use of several that were asked for together.
  void use_all(std::span<const std::string> keys, double now);
  /// The two halves of get(), for a caller that goes on while bytes come: ask() opens the context, nothing when it is
  /// not stored or gone; came() counts what the reading brought, and forgets the context that was damaged.
  [[nodiscard]] std::optional<Reading> ask(const std::string& key);
  void came(const std::string& key, const Reading& reading, bool whole);
  /// Stores a new context; replaces one of the same key. The policy may put it on any tier, demote others or give them
  /// other forms. `accesses`: uses so far, this one counted.
  void put(const std::string& key, std::vector<Form> forms, double now, int64_t accesses = 1) {
    put_all({{.key = key, .forms = std::move(forms), .accesses = accesses}}, now);
  }
  /// Stores several that come together, as put() does.
  void put_all(std::vector<Newcomer> newcomers, double now);
  /// Replaces the forms of a stored context: other qualities or sizes (TieredContexts::profile).
  void profile(const std::string& key, std::vector<Form> forms);
  /// Places all contexts anew where the policy does that; nothing otherwise.
  void rearrange();

  [[nodiscard]] const TieredContexts& books() const { return books_; }
  [[nodiscard]] const StoreCounts& counts() const { return counts_; }
  /// Null when there is no disk tier.
  [[nodiscard]] ContextFolder* folder() { return folder_.get(); }

 private:
  /// The bytes of a context, while a move is under way those of before.
  struct Held {
    std::string key;
    bool there = false;                         // a new one's bytes are not at first
    std::shared_ptr<Block> block;               // bytes on a tier in memory
    std::shared_ptr<const ReadyContext> ready;  // on a tier of ready caches
    Form form;
    Tier tier = Tier::host;
  };
  /// Contexts `used` were read by those who used them.
  void carry_out(const std::vector<Move>& moves, std::span<const int64_t> used = {});
  bool move(const Move& move, bool over_link);
  [[nodiscard]] std::optional<Reading> open(const Held& held, bool over_link = true);
  [[nodiscard]] std::optional<std::vector<std::byte>> read(const Held& held, bool over_link);
  /// The bytes of a form that the context is not held in.
  [[nodiscard]] std::vector<std::byte> make(const Move& move, const Form& form, bool over_link);
  /// Puts bytes on a tier, once its link has carried them there.
  void write(const std::vector<std::byte>& bytes, int64_t tier, Held& to);
  void forget(int64_t id);
  [[nodiscard]] Tier tier_of(int64_t tier) const { return tiers_[static_cast<size_t>(tier)].tier; }
  [[nodiscard]] Link& link_from(Tier tier) const { return tier == Tier::disk ? *disk_ : hierarchy_->load(tier); }

  std::vector<StoreTier> tiers_;
  HierarchyPtr hierarchy_;
  std::unique_ptr<ContextFolder> folder_;
  std::unique_ptr<Link> disk_;  // that its files are read over
  TieredContexts books_;
  Maker maker_;
  Readier readier_;
  LedgerPtr ledger_;
  std::mutex* callers_ = nullptr;
  std::map<std::string, int64_t> ids_;
  std::map<int64_t, Held> held_;
  int64_t next_id_ = 0;
  StoreCounts counts_;
};

}  // namespace kvarena::storage
