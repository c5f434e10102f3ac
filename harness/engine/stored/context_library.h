#pragma once
// Contexts and their caches over tiers: prefilled once, compressed, stored, and brought back for requests to begin
// with.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/stored/cache_chunks.h"
#include "harness/engine/stored/originals.h"
#include "harness/engine/stored/ready_cache.h"
#include "harness/storage/context_store.h"

namespace kvarena::stored {

/// One way to hold a context: as a method leaves it.
struct CacheForm {
  std::string label;                     // of the method and its settings, "" for the uncompressed cache
  double keep = 1;                       // share that it keeps, as it says itself
  std::shared_ptr<const Method> method;  // null: the uncompressed cache
  bool ready = false;                    // some tier holds it as a ready cache (ready_cache.h)
};

/// Bytes of a prompt's cache in a form, at rest.
[[nodiscard]] inline std::vector<std::byte> store_form(const Prefill& prompt, const CacheForm& form) {
  return store_cache(prompt, form.method.get(), form.ready);
}

/// Tiers and folder that contexts lie in (ContextStore).
struct LibraryPlace {
  std::vector<storage::StoreTier> tiers;
  storage::HierarchyPtr hierarchy;
  std::filesystem::path folder;
};

/// A context's cache, for the tokens that follow.
struct LoadedCache {
  KvCache cache;                 // a copy of which lies on the model's device, if it has one with room
  std::map<Tier, double> tiers;  // shares of its bytes by where they lay; empty when it was computed anew
  storage::Form form;            // that it lay in; when it was computed anew, the uncompressed one
  double load_s = 0;             // until its bytes were there
  double restore_s = 0;          // from bytes to a cache and its copy
  double compute_s = 0;          // of the prefill that was needed because it was not there
};

/// One object of a context that is read.
struct ObjectRead {
  std::string key;
  const CacheChunk* chunk = nullptr;  // null: all of the context
  storage::Reading reading;
  bool whole = false;  // its bytes came undamaged
};

/// Result of asking for a context.
struct BroughtCache {
  std::vector<ObjectRead> reads;     // up to one that is damaged; none where one is gone
  std::optional<LoadedCache> cache;  // nothing where it is lost
};

/// Contexts by key, compressed and stored by the forms that a policy chooses, or in chunks. Not thread-safe, but for
/// what ask() gives. Model and policy must outlive it.
class ContextLibrary {
 public:
  /// Offers the policy `forms`, at least one; a context comes in the first. A tier of ready caches is for forms that
  /// say so. Throws UserError as ContextStore does, and when a form's caches cannot be stored. `chunking` divides
  /// uncompressed contexts into objects that lie by themselves; requests then read those that they need of a context,
  /// and use no others. It must outlive this.
  ContextLibrary(Transformer& model, std::shared_ptr<const ModelFacts> facts, std::vector<CacheForm> forms,
                 LibraryPlace place, const storage::Policy& policy, const Chunking* chunking = nullptr);

  /// Prefills a context under a new key. `profile`: its forms with what is known of them, in the order of forms();
  /// without it they are made to know their sizes, and all count as equally good.
  void add(const std::string& key, std::vector<int32_t> tokens, double now,
           std::optional<std::vector<storage::Form>> profile = {});
  /// Adds a prompt that was prefilled already, with what the methods of the forms need. `original` gives it whenever a
  /// form is made, now and later. `accesses`: how often the context has been used already, its coming counted.
  void add(const std::string& key, Original original, double now,
           std::optional<std::vector<storage::Form>> profile = {}, int64_t accesses = 1);

  /// A context on its way.
  struct Bring {
    int64_t bytes = 0;  // that come
    std::function<BroughtCache()> whole;
    [[nodiscard]] BroughtCache operator()() const { return whole(); }
  };
  /// Opens the bytes of a context that was added. They come, and become a cache, when the result is called, once and by
  /// any thread, beside whatever else goes on.
  [[nodiscard]] Bring ask(const std::string& key);
  /// The cache that was brought, or, where the store has lost it, computed anew: the next used() stores that again.
  [[nodiscard]] LoadedCache came(const std::string& key, BroughtCache brought);
  /// Asks and waits.
  [[nodiscard]] LoadedCache load(const std::string& key) { return came(key, ask(key)()); }
  /// Notes that a loaded context was used at `now`, on a clock that only goes forward: contexts move as the policy
  /// wants.
  void used(const std::string& key, double now);
  /// Replaces the profile of a context, and places all contexts anew where the policy does that.
  void reprofile(const std::string& key, std::vector<storage::Form> profile);
  void rearrange() { store_.rearrange(); }

  /// The objects of a context that the store holds: the context itself, or its chunks.
  [[nodiscard]] std::vector<const storage::Context*> stored(const std::string& key) const;
  /// Observations that the forms' methods, or the chunks, need of a prompt.
  [[nodiscard]] const Needs& needs() const { return needs_; }
  [[nodiscard]] const std::vector<CacheForm>& forms() const { return forms_; }
  [[nodiscard]] storage::ContextStore& store() { return store_; }
  [[nodiscard]] const storage::ContextStore& store() const { return store_; }
  /// Contexts that were computed anew because the store had lost them.
  [[nodiscard]] int64_t recomputed() const { return recomputed_; }

 private:
  struct Context {
    std::vector<int32_t> tokens;
    std::vector<storage::Form> profile;
    ChunkedContext divided;  // no chunks where it is stored whole
    Original original;       // empty where no form can be asked for any more
  };
  /// One key of the store.
  struct Object {
    const Context* context = nullptr;
    const CacheChunk* chunk = nullptr;  // null: all of it
  };
  [[nodiscard]] std::function<std::vector<std::byte>()> maker(const std::string& key, const storage::Form& form) const;
  [[nodiscard]] const CacheForm& form_of(const storage::Form& form) const;
  /// Keys and chunks under which a context lies in the store; those alone that requests `need`, or all.
  [[nodiscard]] std::vector<std::pair<std::string, const CacheChunk*>> objects_of(const std::string& key,
                                                                                  const Context& context,
                                                                                  bool need) const;
  void put(const std::string& key, Context& context, double now, int64_t accesses = 1);
  [[nodiscard]] BroughtCache bring(const Context& context, std::vector<ObjectRead> reads) const;

  Transformer* model_;
  std::shared_ptr<const ModelFacts> facts_;
  std::vector<CacheForm> forms_;
  const Chunking* chunking_;
  Needs needs_;
  std::map<std::string, Context> contexts_;
  std::map<std::string, Object> objects_;
  storage::ContextStore store_;
  int64_t recomputed_ = 0;
};

/// Describes forms as a policy sees them, in their order: sizes from making each of `prompt`, quality 1.
[[nodiscard]] std::vector<storage::Form> sized_forms(const Transformer& model, const Prefill& prompt,
                                                     std::span<const CacheForm> forms);

}  // namespace kvarena::stored
