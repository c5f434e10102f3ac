#pragma once
// Entries of prompts by their beginnings: a radix tree over blocks of tokens. Zheng et al. 2024 (SGLang),
// arXiv:2312.07104, section 3; blocks as in Kwon et al. 2023 (vLLM), arXiv:2309.06180.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "harness/model/transformer.h"

namespace kvarena {

/// Entries of one model's prompts. They come from full prefills, so what is reused is exact. Only whole blocks are
/// held, and what was found outlives being forgotten. Not thread-safe.
class PrefixTree {
 public:
  /// Holds at most `capacity_bytes` of entries: insertions forget the least recently used leaves beyond them.
  explicit PrefixTree(int64_t block, int64_t capacity_bytes = std::numeric_limits<int64_t>::max());
  ~PrefixTree();
  PrefixTree(PrefixTree&&) noexcept;

  /// Holds the whole blocks of `tokens`, whose entries are the first of `cache` (dense, from position 0).
  void insert(std::span<const int32_t> tokens, const KvCache& cache);
  /// Counts the tokens at the beginning of `tokens` that are held, a multiple of the block.
  [[nodiscard]] int64_t match(std::span<const int32_t> tokens) const;
  /// The first `count` entries of `cache`.
  struct Piece {
    std::shared_ptr<const KvCache> cache;
    int64_t count = 0;
  };
  /// Finds the longest held beginning of `tokens`, as pieces in order, which counts as used.
  [[nodiscard]] std::vector<Piece> find(std::span<const int32_t> tokens);

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }

 private:
  struct Node;
  /// Nodes from the root that `tokens` begin with, and how much of the last one.
  struct Path {
    std::vector<Node*> nodes;
    int64_t length = 0;   // tokens matched in all
    int64_t in_last = 0;  // of them in the last node
  };
  [[nodiscard]] Path follow(std::span<const int32_t> tokens) const;
  /// Cuts a node after `tokens` tokens: it keeps the front, and the rest hangs below.
  void split(Node& node, int64_t tokens);
  void forget_beyond_capacity();

  int64_t block_;
  int64_t capacity_;
  int64_t bytes_ = 0;
  int64_t tokens_ = 0;
  int64_t clock_ = 0;
  std::unique_ptr<Node> root_;
};

/// Trees by the tokens of a block. Thread-safe: no reader holds up another while entries are copied.
class PrefixTrees {
 public:
  /// Each tree holds at most `capacity_bytes`.
  explicit PrefixTrees(int64_t capacity_bytes = std::numeric_limits<int64_t>::max()) : capacity_(capacity_bytes) {}

  void insert(int64_t block, std::span<const int32_t> tokens, const KvCache& cache);
  [[nodiscard]] int64_t match(int64_t block, std::span<const int32_t> tokens);
  /// Appends the entries of the longest held beginning of `tokens` to an empty cache, bits unchanged, and returns its
  /// length.
  int64_t read(int64_t block, std::span<const int32_t> tokens, KvCache& cache);
  /// Bytes of all entries.
  [[nodiscard]] int64_t bytes() const;

 private:
  PrefixTree& tree(int64_t block) { return trees_.try_emplace(block, block, capacity_).first->second; }

  int64_t capacity_;
  mutable std::mutex mutex_;
  std::map<int64_t, PrefixTree> trees_;  // guarded by mutex_
};

}  // namespace kvarena
