#include "harness/engine/serving/prefix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/serving/iteration_estimate.h"
#include "harness/engine/stored/remaining_cache.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena {
namespace {

using cost_model::Path;
using Clock = std::chrono::steady_clock;

/// Between looks at what has come, while nobody can be fed.
constexpr std::chrono::microseconds kLook{200};

bool drafts(Path path) { return path != Path::local && path != Path::remote; }
bool streams(Path path) { return path == Path::verify_streaming_cached || path == Path::verify_streaming_stateless; }
bool stateless(Path path) { return path == Path::verify_only_stateless || path == Path::verify_streaming_stateless; }

enum class Copy { compressed, full, rest };

const std::shared_ptr<const storage::Block>& copy_of(const StoredPrompt& prompt, Copy copy) {
  if (copy == Copy::compressed) return prompt.compressed;
  return copy == Copy::full ? prompt.full : prompt.rest;
}

/// A copy that a store holds of a prompt, on its way over a link. The full cache becomes one while it comes, as if it
/// lay there in the device's own layout, and goes on to the model's device; what a method left, and what completes
/// that, is restored by whoever takes it, in its own time.
class Incoming {
 public:
  Incoming(PrefixDevice& device, Transformer& model, const StoredPrompt& prompt, Copy copy)
      : model_(&model),
        facts_(prompt.facts.get()),
        method_(copy == Copy::compressed ? prompt.method : nullptr),
        size_(copy_of(prompt, copy)->bytes()),
        transfer_(device.link().carry(size_, 1, [this, &device, copy, from = copy_of(prompt, copy)] {
          bytes_.resize(static_cast<size_t>(size_));
          device.read(*from, bytes_);
          if (copy == Copy::full) restore();
        })) {}
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  [[nodiscard]] bool arrived() const { return transfer_.done(); }
  [[nodiscard]] int64_t size() const { return size_; }
  /// Waits for it. Throws UserError with what the transfer failed with.
  [[nodiscard]] KvCache take() {
    transfer_.wait();
    if (!cache_) restore();
    return std::move(*cache_);
  }
  /// Waits for the rest, and makes the full cache of it and of the compressed one.
  [[nodiscard]] KvCache complete(const KvCache& compressed) {
    transfer_.wait();
    KvCache full = completed_cache(compressed, bytes_);
    count_beside(full, size_);
    return full;
  }

 private:
  void restore() {
    cache_ = restore_cache(*model_, *facts_, method_, bytes_);
    count_beside(*cache_, size_);
    bytes_ = {};
    model_->upload(*cache_, 0);
  }

  Transformer* model_;
  const ModelFacts* facts_;
  const Method* method_;
  int64_t size_;
  std::vector<std::byte> bytes_;
  std::optional<KvCache> cache_;
  storage::Transfer transfer_;  // dies before what it writes
};

/// A request's room on a device of a pool.
struct DevicePlace {
  PrefixDevice* device = nullptr;
  serving::Admission::Place place;
};

/// A load that has yet to begin.
struct DueLoad {
  Copy copy = Copy::full;
  PrefixDevice* device = nullptr;
  std::optional<int64_t> begins;    // iteration; nothing while there is no place for it
  std::optional<int64_t> deadline;  // of a verification: the iteration that it is to have come in
};

struct Served final : PassMember {
  PrefixRequest request;
  enum class Stage { waiting, running, left } stage = Stage::waiting;
  std::optional<DevicePlace> local, remote;
  std::vector<DueLoad> due;
  std::optional<Incoming> compressed, full, rest;
  std::optional<int64_t> deadline;     // iteration in which the full cache is to come for a verification
  int64_t drafted = 0;                 // in the round under way
  std::unique_ptr<PromptRun> reading;  // where it recomputes
  bool drafting = false;               // in the pass under way
  PrefixAnswer answer;

  [[nodiscard]] SequencePass next_pass() override { return reading ? reading->next_pass() : session()->next_pass(); }
  void consume(std::span<const float> logits) override {
    if (reading) return reading->consume(logits);
    session()->consume(logits);
  }
  void failed(const std::string& reason) override { answer.failure = reason; }
  [[nodiscard]] VerifySession* session() const { return answer.session.get(); }
  [[nodiscard]] std::optional<Incoming>& incoming(Copy copy) {
    if (copy == Copy::compressed) return compressed;
    return copy == Copy::full ? full : rest;
  }
  [[nodiscard]] bool moving() const {
    const auto coming = [](const std::optional<Incoming>& one) { return one && !one->arrived(); };
    return coming(compressed) || coming(full) || coming(rest);
  }
};

class Server {
 public:
  Server(Transformer& model, std::span<const StoredPrompt> prompts, const Verifier* verifier,
         const SessionOptions& options, const PrefixRunSettings& settings, std::span<const PrefixRequest> requests)
      : model_(&model),
        prompts_(prompts),
        verifier_(verifier),
        options_(options),
        settings_(&settings),
        local_(settings.local),
        remote_(settings.remote),
        served_(requests.size()),
        start_(Clock::now()) {
    for (size_t i = 0; i < requests.size(); ++i) served_[i].request = requests[i];
  }

  PrefixRun run() {
    while (true) {
      for (Served& one : served_) guard(one, [&] { admit(one); });
      for (Served& one : served_) guard(one, [&] { take_what_came(one); });
      for (Served& one : served_) guard(one, [&] { begin_loads(one); });
      if (std::ranges::all_of(served_, [](const Served& one) { return one.stage == Served::Stage::left; })) break;
      const bool moving = std::ranges::any_of(served_, [](const Served& one) { return one.moving(); });
      const auto before = Clock::now();
      const bool fed = pass();
      if (!fed) std::this_thread::sleep_for(kLook);
      const double seconds = seconds_since(before);
      if (moving) run_.moving_s += seconds;
      if (moving && !fed) run_.waiting_s += seconds;
      if (fed) run_.pass_seconds.push_back(seconds);
      if (fed && settings_->passed) settings_->passed(drafted_);
      advance(fed, seconds);
    }
    run_.local = local_.totals();
    run_.remote = remote_.totals();
    for (Served& one : served_) run_.answers.push_back(std::move(one.answer));
    return std::move(run_);
  }

 private:
  /// An iteration ends with its pass, or, where nobody is fed, when one would.
  void advance(bool fed, double seconds) {
    if (fed && !settings_->iteration_seconds) estimate_.note(seconds);
    if (!fed && seconds_since(iteration_began_) < iteration_seconds()) return;
    ++iteration_;
    iteration_began_ = Clock::now();
    local_.advance();
    remote_.advance();
  }

  [[nodiscard]] double iteration_seconds() const { return settings_->iteration_seconds.value_or(estimate_.seconds()); }

  template <typename Work>
  void guard(Served& one, Work&& work) {
    if (one.stage == Served::Stage::left) return;
    if (one.answer.failure.empty()) one.answer.failure = failure_of(work);
    if (!one.answer.failure.empty()) leave(one);
  }

  void leave(Served& one) {
    one.stage = Served::Stage::left;
    one.due.clear();
    one.compressed.reset();
    one.full.reset();
    one.rest.reset();
    one.reading.reset();
    one.local.reset();
    one.remote.reset();
    one.answer.end_s = since_arrival(one);
    run_.seconds = seconds_since(start_) - served_.front().request.arrival_s;
  }

  [[nodiscard]] double since_arrival(const Served& one) const { return seconds_since(start_) - one.request.arrival_s; }

  [[nodiscard]] const StoredPrompt& prompt_of(const Served& one) const { return prompts_[one.request.prompt]; }

  [[nodiscard]] bool stored(const Served& one) const {
    const StoredPrompt& prompt = prompt_of(one);
    if (one.request.use == PrefixUse::compressed) return prompt.compressed != nullptr;
    const bool drafted_on = !drafts(one.request.path) || prompt.compressed != nullptr;
    return prompt.full != nullptr && drafted_on && (!streams(one.request.path) || prompt.rest != nullptr);
  }

  void admit(Served& one) {
    if (one.stage != Served::Stage::waiting || since_arrival(one) < 0) return;
    PrefixRequest& request = one.request;
    if (request.use != PrefixUse::recompute && !stored(one)) request.use = PrefixUse::recompute;
    const bool path = request.use == PrefixUse::path;
    const bool local = path && request.path == Path::local;
    PrefixDevice& device = (local ? local_ : remote_).emptiest();
    if (!device.has_place()) return;
    (local ? one.local : one.remote).emplace(DevicePlace{.device = &device, .place = device.take()});
    one.stage = Served::Stage::running;
    one.answer.use = request.use;
    if (request.use == PrefixUse::recompute) {
      const StoredPrompt& prompt = prompt_of(one);
      const auto known = std::span(prompt.tokens).first(prompt.tokens.size() - 1);
      one.reading = std::make_unique<PromptRun>(*model_, known, Needs{}, prompt.facts);
      return;
    }
    const bool compressed = request.use == PrefixUse::compressed || drafts(request.path);
    one.due.push_back({.copy = compressed ? Copy::compressed : Copy::full, .device = &device});
  }

  /// Finds places on links for loads that have none, and begins those whose time has come.
  void begin_loads(Served& one) {
    if (one.stage != Served::Stage::running) return;
    place_verification(one);
    for (DueLoad& load : one.due) {
      if (load.begins) continue;
      const auto left = load.device->place_load(copy_of(prompt_of(one), load.copy)->bytes(), iteration_seconds());
      if (left) load.begins = iteration_ + *left;
    }
    std::erase_if(one.due, [&](const DueLoad& load) { return begin_load(one, load); });
    if (!one.deadline || iteration_ <= *one.deadline || one.session()->has_full()) return;
    ++run_.late_verifies;
    one.deadline.reset();
  }

  /// Places the full cache's load for the verification that ends the round.
  void place_verification(Served& one) {
    const bool verifies = one.request.use == PrefixUse::path && drafts(one.request.path) && one.session() != nullptr;
    const auto full = [](const DueLoad& load) { return load.copy == Copy::full; };
    if (!verifies || one.session()->has_full() || one.full || std::ranges::any_of(one.due, full)) return;
    PrefixDevice& device = local_.emptiest();
    const auto placement = device.place_reload(prompt_of(one).full->bytes(), iteration_seconds(),
                                               one.session()->most_drafts() - one.drafted);
    if (!placement) return;
    one.due.push_back({.copy = Copy::full,
                       .device = &device,
                       .begins = iteration_ + placement->first,
                       .deadline = iteration_ + placement->verify});
  }

  /// Whether the load has begun.
  bool begin_load(Served& one, const DueLoad& load) {
    if (!load.begins || iteration_ < *load.begins) return false;
    if (load.deadline) {
      if (!load.device->has_place()) return false;
      const int64_t reserved = std::max<int64_t>(1, *load.deadline - iteration_ + 1);
      one.local.emplace(DevicePlace{.device = load.device, .place = load.device->take_reserved(reserved)});
      one.deadline = load.deadline;
    }
    one.incoming(load.copy).emplace(*load.device, *model_, prompt_of(one), load.copy);
    const bool local = one.local && one.local->device == load.device;
    if (settings_->loads) settings_->loads(static_cast<size_t>(&one - served_.data()), local, iteration_);
    return true;
  }

  [[nodiscard]] KvCache taken(std::optional<Incoming>& came) {
    KvCache cache = came->take();
    came.reset();
    note_peak(cache.ledger->peak(Tier::device));
    return cache;
  }

  /// Caches that are there become what sessions draft and verify on; loads that can begin do.
  void take_what_came(Served& one) {
    if (one.stage != Served::Stage::running) return;
    const bool path = one.request.use == PrefixUse::path;
    if (one.compressed && one.compressed->arrived()) {
      KvCache cache = taken(one.compressed);
      if (path) {
        begin(one, std::move(cache), verifier_);
        if (streams(one.request.path)) one.due.push_back({.copy = Copy::rest, .device = one.remote->device});
      } else {
        begin(one, model_->make_cache(), nullptr);
        one.session()->take_full(std::move(cache));
      }
    }
    if (one.full && one.full->arrived() && (one.session() != nullptr || !drafts(one.request.path))) {
      KvCache cache = taken(one.full);
      if (one.session() == nullptr) begin(one, model_->make_cache(), nullptr);
      one.session()->take_full(std::move(cache));
      one.deadline.reset();
    }
    if (one.rest && one.rest->arrived()) {
      KvCache whole = one.rest->complete(one.session()->drafted_on());
      one.rest.reset();
      note_peak(whole.ledger->peak(Tier::device));
      one.session()->take_full(std::move(whole));
      one.session()->stop_drafting();
      one.due.clear();
      one.full.reset();
      one.local.reset();
      one.deadline.reset();
      one.request.path = Path::remote;  // from here on
    }
  }

  void begin(Served& one, KvCache compressed, const Verifier* verifier) {
    one.answer.session =
        std::make_unique<VerifySession>(*model_, prompt_of(one).tokens, verifier, std::move(compressed), options_);
  }

  [[nodiscard]] static bool can_be_fed(const Served& one) {
    if (one.stage != Served::Stage::running) return false;
    if (one.reading) return true;
    return one.session() != nullptr && (one.session()->can_draft() || one.session()->has_full());
  }

  [[nodiscard]] int64_t held_bytes() const {
    int64_t bytes = 0;
    for (const Served& one : served_) {
      if (one.stage != Served::Stage::running) continue;
      if (one.session() != nullptr) bytes += one.session()->held_bytes();
      if (one.reading) bytes += one.reading->bytes();
      for (const auto* coming : {&one.compressed, &one.full, &one.rest}) {
        if (*coming) bytes += (*coming)->size();
      }
    }
    return bytes;
  }

  /// `beside`: bytes of a cache that has just come, at most, until it is its session's.
  void note_peak(int64_t beside = 0) { run_.peak_bytes = std::max(run_.peak_bytes, held_bytes() + beside); }

  /// Feeds whoever can be fed; false when nobody can.
  bool pass() {
    std::vector<Served*> fed;
    std::vector<PassMember*> members;
    for (Served& one : served_) {
      if (!can_be_fed(one)) continue;
      one.drafting = one.session() != nullptr && one.session()->can_draft();
      fed.push_back(&one);
      members.push_back(&one);
    }
    if (fed.empty()) return false;
    run_pass(*model_, members);
    for (Served* one : fed) guard(*one, [&] { after_pass(*one); });
    note_peak();
    return true;
  }

  void after_pass(Served& one) {
    if (one.reading) {
      if (one.reading->remaining() > 0) return;
      KvCache cache = one.reading->finish().cache;
      one.reading.reset();
      begin(one, model_->make_cache(), nullptr);
      one.session()->take_full(std::move(cache));
      return;
    }
    VerifySession& session = *one.session();
    PrefixAnswer& answer = one.answer;
    if (one.drafting) {
      ++drafted_;
      ++one.drafted;
      if (answer.first_draft_s == 0) answer.first_draft_s = since_arrival(one);
      return;
    }
    one.drafted = 0;
    if (answer.first_token_s == 0) answer.first_token_s = since_arrival(one);
    if (session.finished()) {
      leave(one);
    } else if (one.request.use == PrefixUse::path && stateless(one.request.path)) {
      session.drop_full();
      one.local.reset();
    }
  }

  Transformer* model_;
  std::span<const StoredPrompt> prompts_;
  const Verifier* verifier_;
  SessionOptions options_;
  const PrefixRunSettings* settings_;
  PrefixDevices local_, remote_;
  std::vector<Served> served_;  // dies before the links that its transfers are on
  Clock::time_point start_;
  Clock::time_point iteration_began_ = start_;
  IterationEstimate estimate_;
  int64_t iteration_ = 0;
  int64_t drafted_ = 0;
  PrefixRun run_;
};

std::shared_ptr<const storage::Block> at_rest(storage::Storage& store, std::span<const std::byte> bytes) {
  auto block = store.allocate(std::make_shared<MemoryLedger>(), static_cast<int64_t>(bytes.size()));
  block->write(0, bytes);
  return block;
}

}  // namespace

StoredPrompt store_prompt(Transformer& model, std::span<const int32_t> prompt, const Method* method,
                          std::shared_ptr<const ModelFacts> facts, storage::Storage* store) {
  storage::MemoryStorage here(Tier::remote, storage::kUnlimited);
  if (store == nullptr) store = &here;
  const Prefill known = prefill_to_store(model, prompt, method, std::move(facts));
  StoredPrompt stored{.tokens = {prompt.begin(), prompt.end()},
                      .facts = known.model,
                      .method = method,
                      .full = at_rest(*store, store_cache(known, nullptr))};
  if (method == nullptr) return stored;
  const std::vector<std::byte> compressed = store_cache(known, method);
  stored.compressed = at_rest(*store, compressed);
  stored.rest = at_rest(*store, remaining_bytes(known.cache, restore_cache(model, *known.model, method, compressed)));
  return stored;
}

PrefixRun run_prefixes(Transformer& model, std::span<const StoredPrompt> prompts, const Verifier* verifier,
                       const SessionOptions& options, const PrefixRunSettings& settings,
                       std::span<const PrefixRequest> requests) {
  return Server(model, prompts, verifier, options, settings, requests).run();
}

}  // namespace kvarena
