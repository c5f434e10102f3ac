#include "harness/engine/serving/prefix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>

#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/engine/serving/admission.h"
#include "harness/engine/stored/stored_cache.h"

namespace kvarena {
namespace {

using cost_model::Path;
using Clock = std::chrono::steady_clock;

/// Between looks at what has come, while nobody can be fed.
constexpr std::chrono::microseconds kLook{200};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool drafts(Path path) { return path != Path::local && path != Path::remote; }
bool streams(Path path) { return path == Path::verify_streaming_cached || path == Path::verify_streaming_stateless; }
bool stateless(Path path) { return path == Path::verify_only_stateless || path == Path::verify_streaming_stateless; }

/// A stored cache on its way over a link. The whole one becomes a cache while it comes, as if it lay there in the
/// device's own layout; what a method left is restored by whoever takes it, in its own time.
class Incoming {
 public:
  Incoming(storage::Link& link, const Transformer& model, const StoredPrompt& prompt, bool whole)
      : model_(&model),
        facts_(prompt.facts.get()),
        method_(whole ? nullptr : prompt.method),
        size_((whole ? prompt.full : prompt.compressed)->bytes()),
        transfer_(link.carry(size_, 1, [this, whole, from = whole ? prompt.full : prompt.compressed] {
          bytes_.resize(static_cast<size_t>(size_));
          from->read(0, bytes_);
          if (whole) restore();
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

 private:
  void restore() {
    cache_ = restore_cache(*model_, *facts_, method_, bytes_);
    bytes_ = {};
  }

  const Transformer* model_;
  const ModelFacts* facts_;
  const Method* method_;
  int64_t size_;
  std::vector<std::byte> bytes_;
  std::optional<KvCache> cache_;
  storage::Transfer transfer_;  // dies before what it writes
};

/// A request's room on a device of a pool.
struct DevicePlace {
  storage::Link* link = nullptr;  // from the store to the device
  serving::Admission::Place place;
};

/// The devices of one pool.
class Pool {
 public:
  explicit Pool(const PrefixPool& settings) {
    KVARENA_ASSERT(settings.devices > 0 && settings.requests > 0, "a pool of no room");
    for (int64_t i = 0; i < settings.devices; ++i) devices_.emplace_back(settings);
  }
  /// A place for one more on the emptiest device; nothing when there is none.
  [[nodiscard]] std::optional<DevicePlace> take() {
    constexpr serving::Promise one{.own = 1};
    Device& emptiest = *std::ranges::min_element(devices_, {}, [](const Device& d) { return d.requests.promised(); });
    if (!emptiest.requests.fits(one)) return std::nullopt;
    return DevicePlace{.link = &emptiest.link, .place = emptiest.requests.admit(one)};
  }
  [[nodiscard]] storage::LinkTotals totals() const {
    storage::LinkTotals all;
    for (const Device& device : devices_) {
      const storage::LinkTotals one = device.link.totals();
      all.transfers += one.transfers;
      all.bytes += one.bytes;
      all.pieces += one.pieces;
      all.busy_seconds += one.busy_seconds;
    }
    return all;
  }

 private:
  struct Device {
    explicit Device(const PrefixPool& settings) : requests(settings.requests), link(settings.link, settings.fault) {}
    serving::Admission requests;
    storage::Link link;
  };
  std::deque<Device> devices_;  // stay where they are
};

struct Served final : PassMember {
  PrefixRequest request;
  enum class Stage { waiting, running, left } stage = Stage::waiting;
  std::optional<DevicePlace> local, remote;
  std::optional<Incoming> compressed, full, rest;
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
  [[nodiscard]] bool moving() const {
    const auto coming = [](const std::optional<Incoming>& one) { return one && !one->arrived(); };
    return coming(compressed) || coming(full) || coming(rest);
  }
};

class Server {
 public:
  Server(Transformer& model, const StoredPrompt& prompt, const Verifier* verifier, const SessionOptions& options,
         const PrefixRunSettings& settings, std::span<const PrefixRequest> requests)
      : model_(&model),
        prompt_(&prompt),
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
    }
    run_.local = local_.totals();
    run_.remote = remote_.totals();
    for (Served& one : served_) run_.answers.push_back(std::move(one.answer));
    return std::move(run_);
  }

 private:
  template <typename Work>
  void guard(Served& one, Work&& work) {
    if (one.stage == Served::Stage::left) return;
    if (one.answer.failure.empty()) one.answer.failure = failure_of(work);
    if (!one.answer.failure.empty()) leave(one);
  }

  void leave(Served& one) {
    one.stage = Served::Stage::left;
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

  [[nodiscard]] bool stored(const PrefixRequest& request) const {
    if (request.use == PrefixUse::compressed) return prompt_->compressed != nullptr;
    return prompt_->full != nullptr && (!drafts(request.path) || prompt_->compressed != nullptr);
  }

  void admit(Served& one) {
    if (one.stage != Served::Stage::waiting || since_arrival(one) < 0) return;
    PrefixRequest& request = one.request;
    if (request.use != PrefixUse::recompute && !stored(request)) request.use = PrefixUse::recompute;
    const bool path = request.use == PrefixUse::path;
    const bool local = path && request.path == Path::local;
    std::optional<DevicePlace>& place = local ? one.local : one.remote;
    place = (local ? local_ : remote_).take();
    if (!place) return;
    one.stage = Served::Stage::running;
    one.answer.use = request.use;
    if (request.use == PrefixUse::recompute) {
      const auto known = std::span(prompt_->tokens).first(prompt_->tokens.size() - 1);
      one.reading = std::make_unique<PromptRun>(*model_, known, Needs{}, prompt_->facts);
      return;
    }
    if (request.use == PrefixUse::compressed || drafts(request.path)) {
      one.compressed.emplace(*place->link, *model_, *prompt_, /*whole=*/false);
    } else {
      bring(one.full, *place->link);
    }
  }

  void bring(std::optional<Incoming>& full, storage::Link& link) {
    full.emplace(link, *model_, *prompt_, /*whole=*/true);
  }

  [[nodiscard]] static KvCache taken(std::optional<Incoming>& came) {
    KvCache cache = came->take();
    came.reset();
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
        if (streams(one.request.path)) bring(one.rest, *one.remote->link);
      } else {
        begin(one, model_->make_cache(), nullptr);
        one.session()->take_full(std::move(cache));
      }
    }
    if (one.full && one.full->arrived() && (one.session() != nullptr || !drafts(one.request.path))) {
      KvCache cache = taken(one.full);
      if (one.session() == nullptr) begin(one, model_->make_cache(), nullptr);
      one.session()->take_full(std::move(cache));
    }
    if (one.rest && one.rest->arrived()) {
      one.session()->take_full(taken(one.rest));
      one.session()->stop_drafting();
      one.full.reset();
      one.local.reset();
      one.request.path = Path::remote;  // from here on
    }
    // Whoever drafts wants the full cache as early as the local pool has room for it.
    const bool there = one.session() != nullptr && one.session()->has_full();
    if (!path || !drafts(one.request.path) || there || one.full) return;
    one.local = local_.take();
    if (one.local) bring(one.full, *one.local->link);
  }

  void begin(Served& one, KvCache compressed, const Verifier* verifier) {
    one.answer.session =
        std::make_unique<VerifySession>(*model_, prompt_->tokens, verifier, std::move(compressed), options_);
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
    run_.peak_bytes = std::max(run_.peak_bytes, held_bytes());
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
      if (answer.first_draft_s == 0) answer.first_draft_s = since_arrival(one);
      return;
    }
    if (answer.first_token_s == 0) answer.first_token_s = since_arrival(one);
    if (session.finished()) {
      leave(one);
    } else if (one.request.use == PrefixUse::path && stateless(one.request.path)) {
      session.drop_full();
      one.local.reset();
    }
  }

  Transformer* model_;
  const StoredPrompt* prompt_;
  const Verifier* verifier_;
  SessionOptions options_;
  const PrefixRunSettings* settings_;
  Pool local_, remote_;
  std::vector<Served> served_;  // dies before the links that its transfers are on
  Clock::time_point start_;
  int64_t drafted_ = 0;
  PrefixRun run_;
};

std::shared_ptr<const storage::Block> at_rest(std::span<const std::byte> bytes) {
  auto block = storage::MemoryStorage(Tier::remote, storage::kUnlimited)
                   .allocate(std::make_shared<MemoryLedger>(), static_cast<int64_t>(bytes.size()));
  block->write(0, bytes);
  return block;
}

}  // namespace

StoredPrompt store_prompt(Transformer& model, std::span<const int32_t> prompt, const Method* method,
                          std::shared_ptr<const ModelFacts> facts) {
  if (prompt.size() < 2) {
    fail({.place = "prompt of a stored cache",
          .found = fmt::format("{} tokens", prompt.size()),
          .expected = "at least two: the last one is the request's own"});
  }
  const Prefill known = prefill(model, prompt.first(prompt.size() - 1), method == nullptr ? Needs{} : method->needs(),
                                kPrefillChunk, std::move(facts));
  const auto n = static_cast<int64_t>(prompt.size());
  if (const int64_t window = known.model->rotation_window; window > 0 && n > window) {
    fail({.place = "prompt of a stored cache",
          .found = fmt::format("{} tokens under dynamic rope scaling, which turns keys by the prompt's length", n),
          .expected = fmt::format("at most {}, the original window", window)});
  }
  return {.tokens = {prompt.begin(), prompt.end()},
          .facts = known.model,
          .method = method,
          .full = at_rest(store_cache(known, nullptr)),
          .compressed = method == nullptr ? nullptr : at_rest(store_cache(known, method))};
}

PrefixRun run_prefixes(Transformer& model, const StoredPrompt& prompt, const Verifier* verifier,
                       const SessionOptions& options, const PrefixRunSettings& settings,
                       std::span<const PrefixRequest> requests) {
  return Server(model, prompt, verifier, options, settings, requests).run();
}

}  // namespace kvarena
