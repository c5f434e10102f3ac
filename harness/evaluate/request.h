#pragma once
// A sample as a request to one model: token ids, stop rule, and metrics of its answer.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datasets/workload.h"
#include "harness/engine/session/session.h"
#include "harness/evaluate/thinking.h"
#include "harness/experiment/config.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace kvarena::evaluate {

struct Request {
  const datasets::Sample* sample = nullptr;
  const Tokenizer* tokenizer = nullptr;
  std::shared_ptr<const ModelFacts> facts;  // what methods may know of the model
  /// Tokens that methods compress, with chat template, question and answer prefix; a question that they have not seen,
  /// what follows it, and turns before it are in `question`.
  std::vector<int32_t> prompt;
  std::vector<int32_t> question;
  PromptLayout layout;             // what of the prompt is prefix, context and question
  Tier chunk_tier = Tier::device;  // where chunks lie whose entries are reused
  Thinking thinking;               // marks around what is no part of the answer
  StopRule stop;
  SamplingSettings sampling;
  std::vector<std::string> metrics;  // ids of metrics that score a prediction
  std::vector<std::string> judged;   // ids of metrics that a judge model scores when the run is over
  bool selections = false;           // measure what decoding attends to (metric attention_hit_rate)
  bool retrievals = false;           // the same of retrieval methods alone
  bool token_overlaps = false;       // compare which tokens readings call important (metric token_overlap)
  bool prompt_attention = false;     // measure what a sparse prefill computes (metric prompt_attention_kept)
  /// Makes the request of a sample whose conversation has gone on, which must outlive it; set where the sample is live.
  std::function<Request(const datasets::Sample&)> continued;

  /// Tokens of prompt and question.
  [[nodiscard]] int64_t asked_tokens() const { return static_cast<int64_t>(prompt.size() + question.size()); }
};

/// The engine's sampling, where it says nothing the workload's own.
[[nodiscard]] SamplingSettings sampling_of(const experiment::EngineSettings& engine,
                                           const datasets::Generation& generation);

/// The temperature of the distributions that KL compares: that of sampling, 1 where it is greedy.
[[nodiscard]] double kl_temperature(const SamplingSettings& sampling);

/// Brings the request to so many tokens, prompt and question together: tokens are cut from the middle of the context,
/// or the context is repeated from its start. What is before it and the question stay. The layout no longer has a text.
/// Throws UserError when these alone are longer, and when there is no context to repeat.
void resize_prompt(Request& request, int64_t tokens);

/// The request's part of a session's options.
[[nodiscard]] SessionOptions session_options(const Request& request);

/// An empty memory for requests to one model, with chunks on the request's tier. Throws UserError when the request's
/// machine has no such tier.
[[nodiscard]] std::shared_ptr<ReuseMemory> reuse_memory(const Request& request);

/// The answer's text: without thinking, special tokens skipped, cut before the first stop string.
[[nodiscard]] std::string answer_text(const Request& request, std::span<const int32_t> tokens);

/// The rule that ends generation at a stop string of the sample, behind thinking.
[[nodiscard]] StopRule stop_rule(const datasets::Sample& sample, const Tokenizer& tokenizer, const Thinking& thinking,
                                 std::vector<int32_t> end_tokens, int64_t max_new_tokens);

}  // namespace kvarena::evaluate
