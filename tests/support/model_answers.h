#pragma once
// Everything that a model computes, in one list of numbers: two models that agree on it agree on their bits.

#include <vector>

#include "harness/model/transformer.h"

namespace kvarena::testing {

/// A prompt at once and in chunks, a tree of tokens, two sequences decoding together beside a verification run, an
/// early exit, a recomputation, and what is read of the weights. `prompt` has at least 12 tokens.
inline std::vector<float> all_answers(Transformer& model, std::span<const int32_t> prompt) {
  std::vector<float> all;
  const auto note = [&](std::span<const float> numbers) { all.insert(all.end(), numbers.begin(), numbers.end()); };
  const auto start = [&] {
    KvCache cache = model.make_cache();
    cache.prompt_length = static_cast<int64_t>(prompt.size());
    return cache;
  };
  const auto feed = [&](KvCache& cache, std::span<const int32_t> tokens, int64_t exit_after = 0) {
    const SequencePass pass{.tokens = tokens, .cache = &cache, .logits = LogitsRows::all, .exit_after = exit_after};
    note(model.forward({&pass, 1}));
  };
  KvCache whole = start();
  feed(whole, prompt);
  KvCache chunked = start();
  for (size_t done = 0; done < prompt.size(); done += 5) {
    feed(chunked, prompt.subspan(done, std::min<size_t>(5, prompt.size() - done)));
  }
  for (const int32_t token : prompt.first(3)) {  // decoding beside a verification run
    const SequencePass passes[] = {{.tokens = {&token, 1}, .cache = &whole},
                                   {.tokens = prompt.subspan(2, 4), .cache = &chunked, .logits = LogitsRows::all}};
    note(model.forward(passes));
  }
  KvCache leaving = start();
  feed(leaving, prompt, 1);
  KvCache again = start();
  std::vector<int32_t> positions;
  for (size_t i = 0; i < prompt.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  note(model.recompute({.tokens = prompt, .positions = positions, .cache = &again}).logits);

  std::vector<float> rows(prompt.size() * static_cast<size_t>(model.config().hidden_size));
  model.embed(prompt, rows.data());
  note(rows);
  std::vector<float> logits(static_cast<size_t>(2 * model.config().vocab_size));
  model.predict(rows.data(), 2, logits.data());
  note(logits);
  note(model.output_projection(model.config().layers - 1));
  return all;
}

}  // namespace kvarena::testing
