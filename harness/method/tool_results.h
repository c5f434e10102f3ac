#pragma once
// Results of tools among a request's tokens, for methods that go by them.

#include <cstdint>
#include <span>
#include <string>

namespace kvarena {

struct KvCache;

/// A tool's result: tokens begin .. end-1 of a request, of its prompt or of what follows that.
struct ResultTokens {
  int64_t begin = 0;
  int64_t end = 0;
  std::string tool;  // its name; empty: not known
};

/// A method that goes by where results are.
class ReadsToolResults {
 public:
  virtual ~ReadsToolResults() = default;
  /// Is told of a request's results, in their order: those of the prompt before it is compressed, all of them before
  /// what follows it is fed. What it keeps of them lies in the cache.
  virtual void take_results(KvCache& cache, std::span<const ResultTokens> results) const = 0;
};

}  // namespace kvarena
