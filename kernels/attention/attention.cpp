#include "kernels/attention/attention.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/attention/attention_paths.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Query rows of one kv head of one problem. Row r of a head is token r / group, head r % group of the group.
struct Block {
  const AttendProblem* problem;
  int64_t kv_head;
  int64_t first_row, rows;
  int64_t first_chunk, last_chunk;  // chunks that any row sees
  int64_t partials = -1;            // place of its chunks' partial results; -1: folded into the state at once
};

/// A run of chunks of a block: what a thread takes at a time.
struct Item {
  int64_t block, first_chunk, last_chunk;
};

/// Whole tokens of a kv head that a reader gets: all chunks of consecutive blocks, of which there are several only
/// where a token has more rows than a block. Items of one head take turns: turns[line] counts those that were read.
struct ReadItem {
  int64_t block, blocks;
  int64_t line, turn;
};

/// The cut of one call into items. Which items there are depends on the number of threads; results do not.
struct Plan {
  std::vector<Block> blocks;
  std::vector<Item> items;
  std::vector<ReadItem> read_items;
  std::vector<int64_t> turns;  // [problems that are read, kv_heads]
  std::vector<int64_t> split;  // blocks with partials
  int64_t partial_floats = 0;
  int64_t operations = 0;  // multiply-adds, every chunk counted whole
};

int64_t value_dim_of(const AttendArgs& args) { return args.value_dim == 0 ? args.head_dim : args.value_dim; }

int64_t cost(const Block& block) { return block.rows * (block.last_chunk - block.first_chunk); }

/// Adds blocks for rows first .. last-1 of a head; without those of tokens that see nothing.
void add_blocks(const AttendArgs& args, const AttendProblem& problem, int64_t head, int64_t first, int64_t last,
                Plan& plan) {
  const int64_t group = args.q_heads / args.kv_heads;
  const HeadRun& run = problem.runs[head];
  for (int64_t row = first; row < last; row += kBlockQueryRows) {
    Block block{&problem, head, row, std::min(kBlockQueryRows, last - row), 0, 0};
    // Later tokens never see an earlier end or start, so the first and last row bound the others.
    const Visible earliest = visible_range(problem, run, row / group);
    const Visible latest = visible_range(problem, run, (row + block.rows - 1) / group);
    if (latest.high <= earliest.low) continue;
    block.first_chunk = earliest.low / kChunk;
    block.last_chunk = (latest.high + kChunk - 1) / kChunk;
    plan.blocks.push_back(block);
  }
}

/// Ordered by tokens, all heads of some before the next, so that no item waits long for its turn.
void add_read_items(const AttendArgs& args, const AttendProblem& problem, Plan& plan) {
  const int64_t group = args.q_heads / args.kv_heads;
  const int64_t tokens = std::max<int64_t>(1, kBlockQueryRows / group);
  const auto line = static_cast<int64_t>(plan.turns.size());
  plan.turns.resize(plan.turns.size() + static_cast<size_t>(args.kv_heads), 0);
  std::vector<int64_t> turns(static_cast<size_t>(args.kv_heads), 0);
  for (int64_t token = 0; token < problem.q_len; token += tokens) {
    const int64_t end = std::min(problem.q_len, token + tokens);
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      const auto block = static_cast<int64_t>(plan.blocks.size());
      add_blocks(args, problem, head, token * group, end * group, plan);
      const auto blocks = static_cast<int64_t>(plan.blocks.size()) - block;
      if (blocks > 0) plan.read_items.push_back({block, blocks, line + head, turns[static_cast<size_t>(head)]++});
    }
  }
}

void make_plan(const AttendArgs& args, Plan& plan) {
  plan.blocks.clear();
  plan.items.clear();
  plan.read_items.clear();
  plan.turns.clear();
  plan.split.clear();
  plan.partial_floats = 0;
  for (const AttendProblem& problem : args.problems) {
    if (problem.reader != nullptr) add_read_items(args, problem, plan);
  }
  const size_t read_blocks = plan.blocks.size();
  for (const AttendProblem& problem : args.problems) {
    if (problem.reader != nullptr) continue;
    const int64_t rows = problem.q_len * (args.q_heads / args.kv_heads);
    for (int64_t head = 0; head < args.kv_heads; ++head) add_blocks(args, problem, head, 0, rows, plan);
  }
  int64_t total = 0;
  for (const Block& block : plan.blocks) total += cost(block);
  plan.operations = total * kChunk * (args.head_dim + value_dim_of(args));
  const int64_t threads = thread_count();
  const int64_t largest = std::max<int64_t>(1, total / (threads * 4));
  for (size_t b = read_blocks; b < plan.blocks.size(); ++b) {
    Block& block = plan.blocks[b];
    const int64_t chunks = block.last_chunk - block.first_chunk;
    if (threads == 1 || chunks == 1 || cost(block) <= largest) {
      plan.items.push_back({static_cast<int64_t>(b), block.first_chunk, block.last_chunk});
      continue;
    }
    block.partials = plan.partial_floats;
    plan.partial_floats += chunks * block.rows * (value_dim_of(args) + 2);
    plan.split.push_back(static_cast<int64_t>(b));
    const int64_t step = std::max<int64_t>(1, largest / block.rows);
    for (int64_t c = block.first_chunk; c < block.last_chunk; c += step) {
      plan.items.push_back({static_cast<int64_t>(b), c, std::min(block.last_chunk, c + step)});
    }
  }
}

void fold_row(const AttendArgs& args, const AttentionTable& fast, const Block& block, int64_t r, const float* out,
              float max, float sum) {
  const int64_t group = args.q_heads / args.kv_heads, dim = value_dim_of(args);
  const int64_t token = (block.first_row + r) / group, g = (block.first_row + r) % group;
  const int64_t row = token * args.q_heads + block.kv_head * group + g;
  const AttentionState& state = block.problem->state;
  if (sum == 0) return;
  fast.merge(state.out + row * dim, state.max + row, state.sum + row, out, max, sum, dim);
}

/// Memory of a block's softmax weights and of the maxima of its chunks.
struct Kept {
  float* weights = nullptr;  // [rows] at distance weights_stride, from the block's first chunk on
  int64_t weights_stride = 0;
  float* maxima = nullptr;  // [rows] at distance maxima_stride
  int64_t maxima_stride = 0;
};

void run_item(const AttendArgs& args, const AttentionTable& fast, const Block& block, const Item& item, float* partials,
              const Kept& kept) {
  static thread_local Scratch<float> scratch;
  const int64_t group = args.q_heads / args.kv_heads, dim = value_dim_of(args);
  const AttendProblem& problem = *block.problem;
  const HeadRun& run = problem.runs[block.kv_head];
  const int64_t listed = run.index != nullptr ? run.index_count : run.entries;

  const float* q[kBlockQueryRows];
  Visible visible[kBlockQueryRows];
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t token = (block.first_row + r) / group, g = (block.first_row + r) % group;
    q[r] = problem.q + token * problem.q_token_stride + (block.kv_head * group + g) * problem.q_head_stride;
    visible[r] = r > 0 && g > 0 ? visible[r - 1] : visible_range(problem, run, token);
  }
  const bool packed = run.packed_key_count > 0 || run.packed_value_count > 0;
  const int64_t rounded = kBlockQueryRows * args.head_dim / 2;
  const int64_t work = std::max(packed ? packed_work_floats(args.head_dim, dim) : 0, rounded);
  float* scores = scratch.get(kBlockQueryRows * (kChunk + dim) + work);
  const PackedAttentionTable* packed_table = KVARENA_ACTIVE_INTEGER_TABLE(packed_attention_table);
  float local_max[kBlockQueryRows], local_sum[kBlockQueryRows];
  int32_t low[kBlockQueryRows], high[kBlockQueryRows];
  for (int64_t chunk = item.first_chunk; chunk < item.last_chunk; ++chunk) {
    const int64_t first = chunk * kChunk, count = std::min(kChunk, listed - first);
    for (int64_t r = 0; r < block.rows; ++r) {
      low[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r].low - first, 0, count));
      high[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r].high - first, 0, count));
    }
    const int64_t number = chunk - block.first_chunk;
    float* slot = partials + number * block.rows * (dim + 2);
    const bool partial = block.partials >= 0;
    float* out = partial ? slot : scores + kBlockQueryRows * kChunk;
    float* max = partial ? slot + block.rows * dim : local_max;
    float* sum = partial ? max + block.rows : local_sum;
    fast.chunk({q,
                block.rows,
                run.keys,
                run.values,
                run.packed_keys,
                run.packed_key_count,
                run.packed_values,
                run.packed_value_count,
                problem.dtype,
                args.arithmetic,
                args.head_dim,
                dim,
                args.scale,
                first,
                count,
                run.index,
                run.bias == nullptr ? nullptr : run.bias + first,
                low,
                high,
                scores,
                kept.weights == nullptr ? nullptr : kept.weights + number * kChunk,
                kept.weights_stride,
                scores + kBlockQueryRows * (kChunk + dim),
                out,
                max,
                sum,
                packed_table});
    for (int64_t r = 0; kept.maxima != nullptr && r < block.rows; ++r) {
      kept.maxima[r * kept.maxima_stride + number] = max[r];
    }
    if (partial) continue;
    for (int64_t r = 0; r < block.rows; ++r) fold_row(args, fast, block, r, out + r * dim, max[r], sum[r]);
  }
}

/// Maxima of chunks to factors of their weights: e^(maximum - the row's) / the row's sum.
void maxima_to_factors(const AttendArgs& args, const Block& block, const Kept& kept) {
  const int64_t group = args.q_heads / args.kv_heads;
  const AttentionState& state = block.problem->state;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t token = (block.first_row + r) / group, g = (block.first_row + r) % group;
    const int64_t row = token * args.q_heads + block.kv_head * group + g;
    float* const chunks = kept.maxima + r * kept.maxima_stride;
    for (int64_t c = 0; c < block.last_chunk - block.first_chunk; ++c) {
      // The difference first: where a row saw nothing both may be -inf.
      const double share = chunks[c] == kNothing ? 0 : std::exp(static_cast<double>(chunks[c]) - state.max[row]);
      chunks[c] = static_cast<float>(share / (state.sum[row] == 0 ? 1 : state.sum[row]));
    }
  }
}

/// Shows an item's rows to the problem's reader when its turn has come.
void show(const AttendArgs& args, const Plan& plan, const ReadItem& item, const Kept& kept, int64_t& turn) {
  const int64_t group = args.q_heads / args.kv_heads;
  const Block& first = plan.blocks[static_cast<size_t>(item.block)];
  const Block& last = plan.blocks[static_cast<size_t>(item.block + item.blocks - 1)];
  int64_t low[kBlockQueryRows], high[kBlockQueryRows];
  const int64_t token = first.first_row / group, end = (last.first_row + last.rows) / group;
  for (int64_t t = token; t < end; ++t) {
    const Visible visible = visible_range(*first.problem, first.problem->runs[first.kv_head], t);
    low[t - token] = visible.low;
    high[t - token] = visible.high;
  }
  const std::atomic_ref<int64_t> reached(turn);
  while (reached.load(std::memory_order_acquire) != item.turn) std::this_thread::yield();
  first.problem->reader->read({.kv_head = first.kv_head,
                               .group = group,
                               .first_token = token,
                               .tokens = end - token,
                               .low = low,
                               .high = high,
                               .first = first.first_chunk * kChunk,
                               .weights = kept.weights,
                               .weights_stride = kept.weights_stride,
                               .factors = kept.maxima,
                               .factors_stride = kept.maxima_stride});
  reached.store(item.turn + 1, std::memory_order_release);
}

void run_read_item(const AttendArgs& args, const AttentionTable& fast, const Plan& plan, const ReadItem& item,
                   int64_t& turn) {
  static thread_local Scratch<float> scratch;
  const Block& first = plan.blocks[static_cast<size_t>(item.block)];
  const int64_t chunks = first.last_chunk - first.first_chunk;
  const int64_t stride = chunks * kChunk + kCell;  // one line more: rows a power of two apart would share cache sets
  const int64_t rows = item.blocks * kBlockQueryRows;
  float* const weights = scratch.get(rows * (stride + chunks));
  const Kept kept{weights, stride, weights + rows * stride, chunks};
  for (int64_t b = 0; b < item.blocks; ++b) {
    const Block& block = plan.blocks[static_cast<size_t>(item.block + b)];
    Kept part = kept;
    part.weights += b * kBlockQueryRows * stride;
    part.maxima += b * kBlockQueryRows * chunks;
    run_item(args, fast, block, {item.block + b, block.first_chunk, block.last_chunk}, nullptr, part);
    maxima_to_factors(args, block, part);
  }
  show(args, plan, item, kept, turn);
}

void fold_partials(const AttendArgs& args, const AttentionTable& fast, const Block& block, const float* partials) {
  const int64_t dim = value_dim_of(args);
  for (int64_t chunk = block.first_chunk; chunk < block.last_chunk; ++chunk) {
    const float* slot = partials + (chunk - block.first_chunk) * block.rows * (dim + 2);
    const float* max = slot + block.rows * dim;
    for (int64_t r = 0; r < block.rows; ++r) {
      fold_row(args, fast, block, r, slot + r * dim, max[r], max[block.rows + r]);
    }
  }
}

void require_valid(const AttendArgs& args) {
  require(args.kv_heads > 0 && args.q_heads % args.kv_heads == 0, "attend: q_heads must be a multiple of kv_heads");
  require(args.head_dim > 0 && args.head_dim % kCell == 0 && value_dim_of(args) % kCell == 0,
          "attend: head_dim and value_dim must be multiples of 16");
}

void attend_reference(const AttendArgs& args) {
  for (const AttendProblem& problem : args.problems) {
    parallel_for(problem.q_len * args.q_heads,
                 [&](int64_t row) { attend_query_reference(args, problem, row / args.q_heads, row % args.q_heads); });
    if (problem.reader == nullptr) continue;
    parallel_for(args.kv_heads, [&](int64_t head) { show_queries_reference(args, problem, head); });
  }
}

}  // namespace

Visible visible_range(const AttendProblem& problem, const HeadRun& run, int64_t t) {
  int64_t end = run.entries;
  if (problem.seen != nullptr) {
    end = std::min<int64_t>(end, problem.seen[t]);
  } else if (problem.causal) {
    end = std::max<int64_t>(0, end - (problem.q_len - 1 - t));
  }
  int64_t begin = problem.window > 0 ? std::max<int64_t>(0, end - problem.window) : 0;
  if (problem.chunked && end > 0) {
    const int64_t own = problem.first_position + end - 1;
    begin = std::max<int64_t>(0, own - own % problem.window - problem.first_position);
  }
  if (run.index == nullptr) return {begin, end};
  const int32_t* last = run.index + run.index_count;
  return {std::lower_bound(run.index, last, begin) - run.index, std::lower_bound(run.index, last, end) - run.index};
}

void attend(const AttendArgs& args) {
  require_valid(args);
  const AttentionTable* fast = KVARENA_ACTIVE_BF16_TABLE(attention_table);
  if (fast == nullptr) return attend_reference(args);
  static thread_local Plan plan;
  static thread_local Scratch<float> partial_scratch;
  Plan& cut = plan;  // the caller's, also inside the parallel region
  make_plan(args, cut);
  float* partials = partial_scratch.get(std::max<int64_t>(1, cut.partial_floats));
  parallel_for(static_cast<int64_t>(cut.items.size()), cut.operations, [&](int64_t i) {
    const Item& item = cut.items[static_cast<size_t>(i)];
    const Block& block = cut.blocks[static_cast<size_t>(item.block)];
    run_item(args, *fast, block, item, partials + std::max<int64_t>(0, block.partials), {});
  });
  // A thread that waits for a turn waits for an item that some thread has begun: items are given out in order.
  parallel_for(static_cast<int64_t>(cut.read_items.size()), cut.operations, [&](int64_t i) {
    const ReadItem& item = cut.read_items[static_cast<size_t>(i)];
    run_read_item(args, *fast, cut, item, cut.turns[static_cast<size_t>(item.line)]);
  });
  parallel_for(static_cast<int64_t>(cut.split.size()), cut.operations, [&](int64_t i) {
    const Block& block = cut.blocks[static_cast<size_t>(cut.split[static_cast<size_t>(i)])];
    fold_partials(args, *fast, block, partials + block.partials);
  });
}

void init_attention(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim,
                    const float* sinks) {
  const int64_t rows = q_len * q_heads;
  std::fill_n(state.out, rows * value_dim, 0.0f);
  std::fill_n(state.max, rows, kNothing);
  std::fill_n(state.sum, rows, sinks == nullptr ? 0.0f : 1.0f);
  for (int64_t t = 0; t < q_len && sinks != nullptr; ++t) std::copy_n(sinks, q_heads, state.max + t * q_heads);
}

void merge_attention(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t value_dim) {
  const AttentionTable* fast = KVARENA_ACTIVE_BF16_TABLE(attention_table);
  const auto merge = fast != nullptr ? fast->merge : merge_row_reference;
  for (int64_t r = 0; r < rows; ++r) {
    if (from.sum[r] == 0) continue;
    merge(into.out + r * value_dim, into.max + r, into.sum + r, from.out + r * value_dim, from.max[r], from.sum[r],
          value_dim);
  }
}

void finish_attention(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim, float* lse) {
  for (int64_t r = 0; r < q_len * q_heads; ++r) {
    const float sum = state.sum[r];
    if (lse != nullptr) lse[r] = sum == 0 ? kNothing : state.max[r] + static_cast<float>(std::log(double{sum}));
    if (sum == 0) continue;  // out is still 0
    const float factor = 1 / sum;
    for (int64_t c = 0; c < value_dim; ++c) state.out[r * value_dim + c] *= factor;
  }
}

}  // namespace kvarena::kernels
