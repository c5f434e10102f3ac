#include "harness/evaluate/stored_start.h"

#include <atomic>
#include <chrono>

#include "harness/core/error.h"
#include "harness/engine/session/verify_session.h"
#include "harness/engine/stored/stored_cache.h"
#include "harness/method/verifier.h"

namespace kvarena::evaluate {
namespace {

using Clock = std::chrono::steady_clock;

/// A cache at rest in a tier.
struct StoredStart {
  std::shared_ptr<storage::Block> block;
  storage::HierarchyPtr tiers;
  Tier tier = Tier::host;
  std::shared_ptr<std::atomic<int64_t>> taken;  // bytes of its own, at most, until the prompt goes on

  /// Asks the link for it; it becomes a cache, which goes on to the model's device, as soon as it is there.
  [[nodiscard]] std::future<BroughtPrompt> load(Transformer& model, std::shared_ptr<const ModelFacts> facts,
                                                const Method* method) const {
    const auto start = Clock::now();
    const auto size = static_cast<size_t>(block->bytes());
    const std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
    const auto coming = std::make_shared<storage::Transfer>(
        tiers->load(tier).read(block, {{.at = 0, .memory = bytes.get(), .bytes = block->bytes()}}));
    return std::async(
        std::launch::async, [&model, facts = std::move(facts), method, start, size, bytes, coming, taken = taken] {
          coming->wait();
          const auto cache = std::make_shared<KvCache>(restore_cache(model, *facts, method, {bytes.get(), size}));
          count_beside(*cache, static_cast<int64_t>(size));
          *taken = cache->ledger->peak(Tier::device);
          model.upload(*cache, 0);
          const std::chrono::duration<double> took = Clock::now() - start;
          return BroughtPrompt{.cache = [cache] { return std::move(*cache); }, .seconds = took.count()};
        });
  }
};

}  // namespace

std::string stored_start_problem(const EvaluatedMethod& evaluated) {
  if (evaluated.reference) return "";
  const Method& method = *evaluated.method;
  if (!has_schedule(method)) {
    return describe({.place = "serving.stored_prompts",
                     .found = "another method",
                     .expected = "full KV, or a verifier with a \"schedule\""});
  }
  const auto copy = std::get<CompressedCopy>(method.verifier()->drafter());
  if (copy.auxiliary || method.verifier()->verified_cache()) {
    return describe({.place = "serving.stored_prompts",
                     .found = "a verifier with an auxiliary drafter, or on another cache than full KV",
                     .expected = "one whose drafts are a stored cache's alone"});
  }
  return storing_problem(*copy.compressor);
}

void store_start(Transformer& model, const Request& request, ServedRequest& served) {
  const Verifier* verifier = served.method->verifier();
  CompressedCopy copy;
  if (verifier != nullptr) copy = std::get<CompressedCopy>(verifier->drafter());
  const Method* method = copy.compressor ? &*copy.compressor : nullptr;
  Prefill known = prefill_to_store(model, request.prompt, method, request.facts);
  const std::vector<std::byte> bytes = store_cache(known, method);
  const storage::HierarchyPtr& tiers = request.facts->tiers;
  const StoredStart start{
      .block = tiers->storage(copy.tier).allocate(std::make_shared<MemoryLedger>(), std::ssize(bytes)),
      .tiers = tiers,
      .tier = copy.tier,
      .taken = std::make_shared<std::atomic<int64_t>>(std::ssize(bytes))};
  start.block->write(0, bytes);
  served.begun = std::ssize(request.prompt) - 1;
  served.begin_bytes = std::ssize(bytes);
  served.coming_bytes = [taken = start.taken] { return taken->load(); };
  served.begin = [start, &model, facts = known.model, method] { return start.load(model, facts, method); };
  if (verifier == nullptr) return;
  const auto full = std::make_shared<ParkedCache>(park(std::move(known.cache), tiers, copy.tier));
  served.resume = [full, &model, verifier, prompt = request.prompt, options = served.options](KvCache compressed) {
    return std::make_unique<VerifySession>(model, prompt, *verifier, std::move(compressed), std::move(*full), options);
  };
}

}  // namespace kvarena::evaluate
