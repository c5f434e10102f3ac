#pragma once
// A plan of attention: segments and views say where entries lie, how stored numbers become keys and values, and which
// query sees which entry. One executor on the host (attend_plan.h) and one on a device read the same plan.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "harness/cache/dequant_program.h"
#include "harness/cache/row_transform.h"
#include "harness/cache/segment.h"
#include "kernels/attention/attention.h"

namespace kvarena {

/// Entries of each kv head, [kv_heads] ascending indices.
using EntryLists = std::vector<std::vector<int32_t>>;

/// Which query sees which entry of an item.
struct Visibility {
  enum class Rule : uint8_t {
    all,        // every query sees every entry
    newest,     // the last entries belong to the queries in order, and a query sees those up to its own
    positions,  // a query sees the entries at the positions up to its own
    paths       // the last entries belong to the queries, which form a tree: a query sees what precedes it and its path
  };
  Rule rule = Rule::all;
  /// Entries that a query sees of those it may see, the last ones by number (newest) or position (positions); 0: all.
  int64_t window = 0;
  bool chunked = false;        // AttendProblem::chunked, of positions or of entries from first_position on (newest)
  int64_t first_position = 0;  // newest
  /// paths: [q_len] the row before each on its path, a lower one, or -1 where the tree begins.
  std::span<const int32_t> parents = {};
};

/// Entries seen by position in a layer of the model: all of them, or those in its window.
[[nodiscard]] inline Visibility in_window_of(const LayerShape& shape) {
  if (shape.window == 0) return {};
  return {.rule = Visibility::Rule::positions, .window = shape.window, .chunked = shape.chunked};
}

/// Entries that queries attend to alike.
struct AttentionItem {
  const Segment* from = nullptr;       // who holds the entries, by original position
  const Segment* stored = nullptr;     // who stores the numbers of `runs`; a device knows its copies by its version
  std::vector<kernels::HeadRun> runs;  // [kv_heads], without an index
  DType dtype = DType::f32;            // of cells
  std::vector<kernels::PackedEntries> packed;  // the packed sides that `runs` point to
  /// Maps that packed numbers are under: queries take that of keys, attended values are freed of theirs.
  RowTransformPtr key_transform, value_transform;
  /// How stored numbers become keys and values; none: as they are. With steps, every query sees by `all` or
  /// `positions`.
  DequantProgram steps;
  /// Puts the entries together for one use, to be planned in place of this item; `runs` are then those of them that are
  /// stored as they are, for who attends to the others through a view.
  std::function<std::unique_ptr<Segment>()> gather;
  /// [kv_heads] or [q_heads] ascending entries, these alone; empty: all entries.
  std::vector<std::span<const int32_t>> lists;
  /// Numbers added to the logits of the listed entries, as `lists`, or of each kv head's where none are listed; empty:
  /// none. Log weights of entries that stand for others; not under Visibility::Rule::paths, nor gathered.
  std::vector<std::span<const float>> biases;
  bool ragged = false;  // whether heads hold entries of their own
  Visibility sees;
  /// [q_len, q_heads, head_dim] in place of the plan's queries; null: those.
  const float* queries = nullptr;
  int64_t first_row = 0;  // the first query that sees any entry; the queries before it have no part in `sees`
  /// Where its numbers stand among those of the plan's entries: from `column` on, one behind the other (listed entries
  /// alone), or of each kv head at `column` + columns[i].
  int64_t column = 0;
  std::span<const std::vector<int32_t>> columns = {};
};

struct AttentionPlan {
  LayerQueries queries;
  std::vector<AttentionItem> items;  // in the order in which they are merged
  int64_t columns = 0;               // of the entries so far: of the longest head where heads differ

  /// Begins an item whose numbers stand behind those of the items so far.
  AttentionItem& add(const Segment& from);
};

/// Original positions of the entries that an item shows to a query head, in its order, without kNoPosition.
[[nodiscard]] std::vector<int32_t> positions_of(const AttentionItem& item, int64_t q_head);

/// Plans the attention to one segment.
[[nodiscard]] AttentionPlan plan_of(const Segment& segment, const LayerQueries& queries);

}  // namespace kvarena
