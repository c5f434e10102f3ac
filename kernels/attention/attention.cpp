#include "kernels/attention/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
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
  int64_t partials = -1;            // where its chunks' partial results lie; -1: folded into the state at once
};

/// A run of chunks of a block: what a thread takes at a time.
struct Item {
  int64_t block, first_chunk, last_chunk;
};

/// The cut of one call into items. Which items there are depends on the number of threads; results do not.
struct Plan {
  std::vector<Block> blocks;
  std::vector<Item> items;
  std::vector<int64_t> split;  // blocks with partials
  int64_t partial_floats = 0;
  int64_t operations = 0;  // multiply-adds, every chunk counted whole
};

int64_t value_dim_of(const AttendArgs& args) { return args.value_dim == 0 ? args.head_dim : args.value_dim; }

int64_t cost(const Block& block) { return block.rows * (block.last_chunk - block.first_chunk); }

void add_blocks(const AttendArgs& args, const AttendProblem& problem, Plan& plan) {
  const int64_t group = args.q_heads / args.kv_heads, rows = problem.q_len * group;
  for (int64_t head = 0; head < args.kv_heads; ++head) {
    const HeadRun& run = problem.runs[head];
    for (int64_t row = 0; row < rows; row += kBlockQueryRows) {
      Block block{&problem, head, row, std::min(kBlockQueryRows, rows - row), 0, 0};
      // Later tokens never see an earlier end or start, so the first and last row bound the others.
      const Visible first = visible_range(problem, run, row / group);
      const Visible last = visible_range(problem, run, (row + block.rows - 1) / group);
      if (last.high <= first.low) continue;
      block.first_chunk = first.low / kChunk;
      block.last_chunk = (last.high + kChunk - 1) / kChunk;
      plan.blocks.push_back(block);
    }
  }
}

void make_plan(const AttendArgs& args, Plan& plan) {
  plan.blocks.clear();
  plan.items.clear();
  plan.split.clear();
  plan.partial_floats = 0;
  for (const AttendProblem& problem : args.problems) add_blocks(args, problem, plan);
  int64_t total = 0;
  for (const Block& block : plan.blocks) total += cost(block);
  plan.operations = total * kChunk * (args.head_dim + value_dim_of(args));
  const int64_t threads = thread_count();
  const int64_t largest = std::max<int64_t>(1, total / (threads * 4));
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
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

void run_item(const AttendArgs& args, const AttentionTable& fast, const Block& block, const Item& item,
              float* partials) {
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
  const int64_t work = packed ? packed_work_floats(args.head_dim, dim) : 0;
  float* scores = scratch.get(kBlockQueryRows * (kChunk + dim) + work);
  float local_max[kBlockQueryRows], local_sum[kBlockQueryRows];
  int32_t low[kBlockQueryRows], high[kBlockQueryRows];
  for (int64_t chunk = item.first_chunk; chunk < item.last_chunk; ++chunk) {
    const int64_t first = chunk * kChunk, count = std::min(kChunk, listed - first);
    for (int64_t r = 0; r < block.rows; ++r) {
      low[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r].low - first, 0, count));
      high[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r].high - first, 0, count));
    }
    float* slot = partials + (chunk - block.first_chunk) * block.rows * (dim + 2);
    const bool keep = block.partials >= 0;
    float* out = keep ? slot : scores + kBlockQueryRows * kChunk;
    float* max = keep ? slot + block.rows * dim : local_max;
    float* sum = keep ? max + block.rows : local_sum;
    fast.chunk({q,
                block.rows,
                run.keys,
                run.values,
                run.packed_keys,
                run.packed_key_count,
                run.packed_values,
                run.packed_value_count,
                problem.dtype,
                args.head_dim,
                dim,
                args.scale,
                first,
                count,
                run.index,
                low,
                high,
                scores,
                scores + kBlockQueryRows * (kChunk + dim),
                out,
                max,
                sum});
    if (keep) continue;
    for (int64_t r = 0; r < block.rows; ++r) fold_row(args, fast, block, r, out + r * dim, max[r], sum[r]);
  }
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
  const int64_t begin = problem.window > 0 ? std::max<int64_t>(0, end - problem.window) : 0;
  if (run.index == nullptr) return {begin, end};
  const int32_t* last = run.index + run.index_count;
  return {std::lower_bound(run.index, last, begin) - run.index, std::lower_bound(run.index, last, end) - run.index};
}

void attend(const AttendArgs& args) {
  require_valid(args);
  const AttentionTable* fast = KVARENA_ACTIVE_INTEGER_TABLE(attention_table);
  if (fast == nullptr) return attend_reference(args);
  static thread_local Plan plan;
  static thread_local Scratch<float> partial_scratch;
  Plan& cut = plan;  // the caller's, also inside the parallel region
  make_plan(args, cut);
  float* partials = partial_scratch.get(std::max<int64_t>(1, cut.partial_floats));
  parallel_for(static_cast<int64_t>(cut.items.size()), cut.operations, [&](int64_t i) {
    const Item& item = cut.items[static_cast<size_t>(i)];
    const Block& block = cut.blocks[static_cast<size_t>(item.block)];
    run_item(args, *fast, block, item, partials + std::max<int64_t>(0, block.partials));
  });
  parallel_for(static_cast<int64_t>(cut.split.size()), cut.operations, [&](int64_t i) {
    const Block& block = cut.blocks[static_cast<size_t>(cut.split[static_cast<size_t>(i)])];
    fold_partials(args, *fast, block, partials + block.partials);
  });
}

void init_attention(const AttentionState& state, int64_t q_len, int64_t q_heads, int64_t value_dim) {
  const int64_t rows = q_len * q_heads;
  std::fill_n(state.out, rows * value_dim, 0.0f);
  std::fill_n(state.max, rows, kNothing);
  std::fill_n(state.sum, rows, 0.0f);
}

void merge_attention(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t value_dim) {
  const AttentionTable* fast = KVARENA_ACTIVE_INTEGER_TABLE(attention_table);
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
