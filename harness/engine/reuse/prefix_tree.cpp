#include "harness/engine/reuse/prefix_tree.h"

#include <algorithm>

#include "harness/core/error.h"

namespace kvarena {

struct PrefixTree::Node {
  std::vector<int32_t> tokens;                                     // whole blocks; none at the root
  std::shared_ptr<const KvCache> cache;                            // their entries
  std::map<std::vector<int32_t>, std::unique_ptr<Node>> children;  // by their first block
  Node* parent = nullptr;
  int64_t used = 0;  // when, by the tree's clock

  [[nodiscard]] int64_t bytes() const { return cache ? cache->bytes() : 0; }
};

namespace {

std::shared_ptr<const KvCache> part_of(const KvCache& cache, int64_t first, int64_t count) {
  std::vector<LayerShape> shapes;
  for (const LayerCache& layer : cache.layers) shapes.push_back(layer.shape());
  auto part = std::make_shared<KvCache>(shapes);
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    part->layers[layer].tail().append_entries(cache.layers[layer].tail(), first, count);
  }
  part->length = count;
  return part;
}

}  // namespace

PrefixTree::PrefixTree(int64_t block, int64_t capacity_bytes)
    : block_(block), capacity_(capacity_bytes), root_(std::make_unique<Node>()) {}
PrefixTree::~PrefixTree() = default;
PrefixTree::PrefixTree(PrefixTree&&) noexcept = default;

PrefixTree::Path PrefixTree::follow(std::span<const int32_t> tokens) const {
  Path path{.nodes = {root_.get()}};
  while (static_cast<int64_t>(tokens.size()) - path.length >= block_) {
    const auto rest = tokens.subspan(static_cast<size_t>(path.length));
    const auto& children = path.nodes.back()->children;
    const auto it = children.find({rest.begin(), rest.begin() + block_});
    if (it == children.end()) break;
    Node* node = it->second.get();
    const auto differ = std::ranges::mismatch(node->tokens, rest).in1 - node->tokens.begin();
    path.nodes.push_back(node);
    path.in_last = differ / block_ * block_;
    path.length += path.in_last;
    if (path.in_last < static_cast<int64_t>(node->tokens.size())) break;
  }
  return path;
}

void PrefixTree::split(Node& node, int64_t tokens) {
  auto rest = std::make_unique<Node>();
  rest->tokens.assign(node.tokens.begin() + tokens, node.tokens.end());
  rest->cache = part_of(*node.cache, tokens, static_cast<int64_t>(rest->tokens.size()));
  rest->children = std::move(node.children);
  for (auto& [first, child] : rest->children) child->parent = rest.get();
  rest->parent = &node;
  rest->used = node.used;

  bytes_ -= node.bytes();
  node.tokens.resize(static_cast<size_t>(tokens));
  node.cache = part_of(*node.cache, 0, tokens);
  bytes_ += node.bytes() + rest->bytes();
  node.children.clear();
  std::vector<int32_t> first(rest->tokens.begin(), rest->tokens.begin() + block_);
  node.children.emplace(std::move(first), std::move(rest));
}

void PrefixTree::insert(std::span<const int32_t> tokens, const KvCache& cache) {
  const auto whole = static_cast<int64_t>(tokens.size()) / block_ * block_;
  const Path path = follow(tokens.first(static_cast<size_t>(whole)));
  Node* at = path.nodes.back();
  ++clock_;
  for (Node* node : path.nodes) node->used = clock_;
  if (path.length < whole) {
    if (path.in_last < static_cast<int64_t>(at->tokens.size())) split(*at, path.in_last);
    auto leaf = std::make_unique<Node>();
    leaf->tokens.assign(tokens.begin() + path.length, tokens.begin() + whole);
    leaf->cache = part_of(cache, path.length, whole - path.length);
    leaf->parent = at;
    leaf->used = clock_;
    bytes_ += leaf->bytes();
    tokens_ += whole - path.length;
    std::vector<int32_t> first(leaf->tokens.begin(), leaf->tokens.begin() + block_);
    at->children.emplace(std::move(first), std::move(leaf));
  }
  forget_beyond_capacity();
}

int64_t PrefixTree::match(std::span<const int32_t> tokens) const { return follow(tokens).length; }

std::vector<PrefixTree::Piece> PrefixTree::find(std::span<const int32_t> tokens) {
  const Path path = follow(tokens);
  ++clock_;
  std::vector<Piece> pieces;
  for (Node* node : path.nodes) {
    node->used = clock_;
    if (!node->cache) continue;
    pieces.push_back({.cache = node->cache, .count = std::ssize(node->tokens)});
  }
  if (!pieces.empty()) pieces.back().count = path.in_last;
  return pieces;
}

/// Least recently used leaves go first; a parent whose children are gone is a leaf.
void PrefixTree::forget_beyond_capacity() {
  while (bytes_ > capacity_) {
    Node* oldest = nullptr;
    std::vector<Node*> open = {root_.get()};
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      for (auto& [first, child] : node->children) open.push_back(child.get());
      const bool leaf = node->children.empty() && node->parent != nullptr;
      if (leaf && (oldest == nullptr || node->used < oldest->used)) oldest = node;
    }
    if (oldest == nullptr) return;
    bytes_ -= oldest->bytes();
    tokens_ -= static_cast<int64_t>(oldest->tokens.size());
    const std::vector<int32_t> first(oldest->tokens.begin(), oldest->tokens.begin() + block_);
    oldest->parent->children.erase(first);
  }
}

void PrefixTrees::insert(int64_t block, std::span<const int32_t> tokens, const KvCache& cache) {
  const std::lock_guard lock(mutex_);
  tree(block).insert(tokens, cache);
}

int64_t PrefixTrees::match(int64_t block, std::span<const int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  return tree(block).match(tokens);
}

int64_t PrefixTrees::read(int64_t block, std::span<const int32_t> tokens, KvCache& cache) {
  std::vector<PrefixTree::Piece> pieces;
  {
    const std::lock_guard lock(mutex_);
    pieces = tree(block).find(tokens);
  }
  for (const PrefixTree::Piece& piece : pieces) {
    for (size_t layer = 0; layer < cache.layers.size(); ++layer)
      cache.layers[layer].tail().append_entries(piece.cache->layers[layer].tail(), 0, piece.count);
    cache.length += piece.count;
  }
  return cache.length;
}

int64_t PrefixTrees::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [block, tree] : trees_) total += tree.bytes();
  return total;
}

}  // namespace kvarena
