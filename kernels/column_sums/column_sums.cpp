#include "kernels/column_sums/column_sums.h"

#include <vector>

#include "kernels/attention/attention_paths.h"
#include "kernels/column_sums/column_sums_paths.h"
#include "kernels/common/parallel.h"

namespace kvarena::kernels {
namespace {

/// Entries of one work item: their keys fit the second-level cache beside a tile of queries.
constexpr int64_t kEntries = 256;

struct Item {
  const ColumnSumsProblem* problem;
  int64_t kv_head, first, count;
};

void run_item(const ColumnSumsArgs& args, const ColumnSumsTable* fast, const Item& item) {
  static thread_local Scratch<int32_t> scratch;
  const ColumnSumsProblem& problem = *item.problem;
  const HeadRun& run = problem.runs[item.kv_head];
  AttendProblem visibility;
  visibility.q_len = problem.q_len;
  visibility.causal = problem.causal;
  visibility.window = problem.window;
  visibility.chunked = problem.chunked;
  visibility.first_position = problem.first_position;
  int32_t* low = scratch.get(2 * problem.q_len);
  int32_t* high = low + problem.q_len;
  for (int64_t t = 0; t < problem.q_len; ++t) {
    const Visible visible = visible_range(visibility, run, t);
    low[t] = static_cast<int32_t>(std::clamp<int64_t>(visible.low - item.first, 0, item.count));
    high[t] = static_cast<int32_t>(std::clamp<int64_t>(visible.high - item.first, 0, item.count));
  }
  static thread_local Scratch<float> floats;
  float* work_floats = floats.get(packed_key_floats(args.head_dim));
  const ColumnSumsWork work{&args, &problem, item.kv_head, item.first, item.count, low, high, work_floats};
  if (fast != nullptr) {
    fast->run(work);
  } else {
    column_sums_reference(work);
  }
}

}  // namespace

void column_sums(const ColumnSumsArgs& args) {
  require(args.kv_heads > 0 && args.q_heads % args.kv_heads == 0,
          "column_sums: q_heads must be a multiple of kv_heads");
  require(args.head_dim > 0 && args.head_dim % kCell == 0, "column_sums: head_dim must be a multiple of 16");
  std::vector<Item> items;
  int64_t operations = 0;
  for (const ColumnSumsProblem& problem : args.problems) {
    if (problem.q_len == 0) continue;
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      const HeadRun& run = problem.runs[head];
      const int64_t listed = run.index != nullptr ? run.index_count : run.entries;
      for (int64_t first = 0; first < listed; first += kEntries) {
        items.push_back({&problem, head, first, std::min(kEntries, listed - first)});
        operations += items.back().count * problem.q_len * (args.q_heads / args.kv_heads) * args.head_dim;
      }
    }
  }
  const ColumnSumsTable* fast = KVARENA_ACTIVE_BF16_TABLE(column_sums_table);
  parallel_for(static_cast<int64_t>(items.size()), operations,
               [&](int64_t i) { run_item(args, fast, items[static_cast<size_t>(i)]); });
}

}  // namespace kvarena::kernels
