#include "harness/engine/reuse/reuse_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <numeric>

#include "harness/core/error.h"
#include "harness/core/seconds_since.h"
#include "harness/engine/reuse/cartridge.h"
#include "harness/engine/reuse/narrowing.h"
#include "harness/engine/reuse/recovery.h"
#include "harness/engine/reuse/shared_chunks.h"
#include "harness/model/pass_checks.h"

namespace kvarena {
namespace {

using Clock = std::chrono::steady_clock;

/// Context tokens to compute, checked.
std::vector<int32_t> chosen(const Reuser& reuser, const ReusePrompt& prompt) {
  std::vector<int32_t> selected = reuser.select(prompt);
  const bool valid = std::ranges::adjacent_find(selected, std::greater_equal{}) == selected.end() &&
                     (selected.empty() || (selected.front() >= 0 && selected.back() < prompt.question));
  KVARENA_ASSERT(valid, fmt::format("a selection that does not ascend in a context of {} tokens", prompt.question));
  return selected;
}

}  // namespace

ReuseRun::ReuseRun(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                   const Reuser& reuser, ReuseMemory& memory)
    : model_(&model),
      layout_(&layout),
      reuser_(&reuser),
      memory_(&memory),
      prompt_(reuse_prompt_of(tokens, layout, reuser)),
      result_{.cache = model.make_cache(), .logits = {}, .record = {}},
      narrows_(Narrowing::wanted(reuser, model.config().layers)) {
  require_entries(model.config(), "prompt", "reuse of entries");
  const auto n = std::ssize(tokens);
  if (reuser.source() == ReuseSource::chunks || reuser.source() == ReuseSource::artifact) require_recoverable(model, n);
  result_.cache.prompt_length = n;
  const auto speculative = reuser.speculative();
  if (speculative && speculative->path.empty()) reading_.emplace(model, tokens, speculative->layers);
}

/// Fills the cache with what the memory holds, which goes on to the model's device, if it has one, chunk by chunk.
void ReuseRun::load() {
  const auto start = Clock::now();
  KvCache& cache = result_.cache;
  const auto go_on = [&] {
    if (cache.length > 0) model_->upload(cache, std::ssize(prompt_.tokens) - cache.length);
  };
  switch (reuser_->source()) {
    case ReuseSource::nothing: break;
    case ReuseSource::prefix:
      (void)memory_->prefixes->read(reuser_->block(), prompt_.tokens.first(prompt_.tokens.size() - 1), cache);
      go_on();
      break;
    case ReuseSource::chunks:
      for (const PromptPart& part : prompt_.parts) {
        if (stop_.stop_requested()) return;
        const ChunkCache chunk = memory_->chunks->find(chunk_key(*model_, tokens_of(prompt_, part)));
        KVARENA_ASSERT(chunk != nullptr, fmt::format("no entries of tokens {} to {}", part.begin, part.end));
        append_recovered(*model_, *chunk, cache);
        go_on();
        if (reuser_->adjusts() || reuser_->shares_cells()) chunks_.push_back(chunk);
      }
      break;
    case ReuseSource::artifact: {
      const ChunkCache entries = memory_->chunks->find(cartridge_key(*model_, *reuser_));
      KVARENA_ASSERT(entries != nullptr, "no entries of the artifact");
      if (entries->length < prompt_.question) append_cartridge(*model_, *entries, prompt_.question, cache);
      go_on();
      break;
    }
  }
  result_.record.load_s = seconds_since(start);
}

/// Has a speculative model of its own read the prompt, if there is one, and chooses.
void ReuseRun::score() {
  const auto speculative = reuser_->speculative();
  if (!speculative) return choose(nullptr);
  const auto start = Clock::now();
  const Speculation speculation = speculate(*model_, prompt_.tokens, *layout_, *speculative, stop_.get_token());
  result_.record.score_s = seconds_since(start);
  if (!stop_.stop_requested()) choose(&speculation);
}

void ReuseRun::choose(const Speculation* speculation) {
  const auto start = Clock::now();
  prompt_.speculation = speculation;
  if (reuser_->adjusts()) prompt_.entries = &entries_.emplace(*model_, prompt_.parts, chunks_, result_.cache);
  if (reuser_->source() == ReuseSource::chunks) rows_ = chosen(*reuser_, prompt_);
  if (reuser_->adjusts()) divide_parts();
  prompt_.speculation = nullptr;
  result_.record.align_s = seconds_since(start);
}

void ReuseRun::divide_parts() {
  for (size_t part = 1; part < prompt_.parts.size(); ++part) {
    const auto next = std::ranges::lower_bound(rows_, prompt_.parts[part].begin);
    (next == rows_.end() || *next >= prompt_.parts[part].end ? unadjusted_ : changed_).push_back(part);
  }
}

int64_t ReuseRun::rows_of_pass() {
  const int64_t most = std::min(chunk_, remaining());
  const auto next = rows_.begin() + done_;
  const auto waits = [&](size_t part) { return prompt_.parts[part].begin > *next; };
  const auto later = std::ranges::find_if(unadjusted_, waits);
  for (auto part = unadjusted_.begin(); part != later; ++part) {
    const std::span<const size_t> before(changed_.begin(), std::ranges::lower_bound(changed_, *part));
    replace_rows(reuser_->adjusted(prompt_, *part, before), prompt_.parts[*part].begin, result_.cache);
  }
  unadjusted_.erase(unadjusted_.begin(), later);
  if (unadjusted_.empty()) return most;
  return std::min<int64_t>(most, std::lower_bound(next, rows_.end(), prompt_.parts[unadjusted_.front()].begin) - next);
}

void ReuseRun::begin(Beginning how) {
  const auto start = Clock::now();
  const bool alone = how == Beginning::alone;
  const auto speculative = reuser_->speculative();
  const bool itself = speculative && speculative->path.empty();
  const bool scores = speculative && (alone || !itself);
  std::future<void> loading = std::async(scores ? std::launch::async : std::launch::deferred, [&] { load(); });
  if (reuser_->adjusts()) loading.wait();  // it chooses by what was loaded
  if (!itself && !stop_.stop_requested()) score();
  while (itself && alone && reads_itself()) {
    const SequencePass pass = next_pass();
    consume(model_->forward({&pass, 1}));
  }
  loading.get();
  result_.record.total_s = seconds_since(start);
}

void ReuseRun::arrange() {
  if (arranged_) return;
  result_.record.loaded_bytes = result_.cache.bytes();
  for (int64_t position = result_.cache.length; position < std::ssize(prompt_.tokens); ++position)
    rows_.push_back(static_cast<int32_t>(position));
  arranged_ = true;
}

SequencePass ReuseRun::next_pass() {
  pass_begin_ = Clock::now();
  if (reading_) {
    reading_->run.set_chunk(chunk_);
    return reading_->run.next_pass();
  }
  const std::span<const int32_t> positions =
      std::span(rows_).subspan(static_cast<size_t>(done_), static_cast<size_t>(rows_of_pass()));
  tokens_.clear();
  for (const int32_t position : positions) tokens_.push_back(prompt_.tokens[static_cast<size_t>(position)]);
  done_ += std::ssize(positions);
  const bool follow = positions.front() == result_.cache.length;
  return {.tokens = tokens_,
          .cache = &result_.cache,
          .logits = remaining() == 0 ? LogitsRows::last : LogitsRows::none,
          .positions = follow ? std::span<const int32_t>() : positions};
}

void ReuseRun::consume(std::span<const float> logits) {
  if (reading_) {
    result_.record.score_s += seconds_since(pass_begin_);
    if (reading_->run.remaining() > 0) return;
    const Speculation speculation = reading_->norms.take();
    reading_.reset();
    return choose(&speculation);
  }
  result_.logits.assign(logits.begin(), logits.end());
  const auto positions = std::span(rows_).subspan(static_cast<size_t>(done_) - tokens_.size(), tokens_.size());
  const std::vector<int64_t> rows(static_cast<size_t>(model_->config().layers), std::ssize(positions));
  count(rows, positions, seconds_since(pass_begin_));
}

void ReuseRun::failed(const std::string& reason) { throw UserError(reason); }

void ReuseRun::compute() {
  const auto start = Clock::now();
  Narrowing narrowing(*reuser_, prompt_.question);
  const Recomputed computed =
      model_->recompute({.tokens = prompt_.tokens, .positions = rows_, .cache = &result_.cache, .filter = &narrowing});
  done_ = std::ssize(rows_);
  result_.logits.assign(computed.logits.begin(), computed.logits.end());
  count(computed.rows, computed.positions, seconds_since(start));
}

void ReuseRun::count(std::span<const int64_t> rows, std::span<const int32_t> positions, double seconds) {
  computed_ += std::accumulate(rows.begin(), rows.end(), int64_t{0});
  last_layer_ += rows.back();
  ReuseRecord& record = result_.record;
  std::ranges::copy_if(positions, std::back_inserter(record.recomputed),
                       [&](int32_t position) { return position < prompt_.question; });
  record.prefill_s += seconds;
  record.total_s += seconds;
}

ReusedPrompt ReuseRun::finish() {
  KVARENA_ASSERT(remaining() == 0, fmt::format("{} tokens remain", remaining()));
  if (reuser_->shares_cells()) share_chunks(*model_, prompt_.parts, chunks_, rows_, result_.cache);
  const int64_t n = std::ssize(prompt_.tokens);
  result_.record.reused = n - last_layer_;
  result_.record.recompute_share = static_cast<double>(computed_) / static_cast<double>(n * model_->config().layers);
  return std::move(result_);
}

ReusedPrompt reuse_prompt(Transformer& model, std::span<const int32_t> tokens, const PromptLayout& layout,
                          const Reuser& reuser, ReuseMemory& memory) {
  ReuseRun run(model, tokens, layout, reuser, memory);
  run.begin(ReuseRun::Beginning::alone);
  run.arrange();
  if (run.narrows()) run.compute();
  while (run.remaining() > 0) {
    const SequencePass pass = run.next_pass();
    run.consume(model.forward({&pass, 1}));
  }
  return run.finish();
}

}  // namespace kvarena
