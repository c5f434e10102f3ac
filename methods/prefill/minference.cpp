#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/method/prompt_blocks.h"
#include "harness/method/selection.h"

namespace kvarena {
namespace {

constexpr int64_t kBlock = 64;

/// Ranges of keys, in whole blocks from where each begins, that the block of queries which ends before `end` attends to
/// along its diagonals: those of the `offsets`, descending. A diagonal that ends within a block behind a range extends
/// it by a block.
std::vector<EntryRange> along_diagonals(const std::vector<int32_t>& offsets, int64_t end) {
  std::vector<EntryRange> ranges;
  for (const int32_t offset : offsets) {
    if (offset >= end) continue;
    const auto to = static_cast<int32_t>(std::max(end - offset, kBlock));
    if (ranges.empty() || to > ranges.back().end + kBlock) {
      ranges.push_back({static_cast<int32_t>(to - kBlock), to});
    } else if (to > ranges.back().end) {
      ranges.back().end += kBlock;
    }
  }
  return ranges;
}

/// The ranges up to entry `last`, and between them the columns, both ascending.
std::vector<EntryRange> with_columns(const std::vector<EntryRange>& ranges, const std::vector<int32_t>& columns,
                                     int64_t last) {
  std::vector<EntryRange> all;
  auto column = columns.begin();
  for (EntryRange range : ranges) {
    range.end = static_cast<int32_t>(std::min<int64_t>(range.end, last));
    for (; column != columns.end() && *column < range.begin; ++column) all.push_back({*column, *column + 1});
    while (column != columns.end() && *column < range.end) ++column;
    all.push_back(range);
  }
  return all;
}

/// The pattern of one head: columns and diagonals, or first entries and a window.
struct HeadPattern {
  bool streams = false;
  int64_t vertical = 0;  // columns, or first entries
  int64_t slash = 0;     // diagonals, or the window
};

/// A layer's heads as a file of the authors' search has them: [layers] of {"0": ["vertical_and_slash", 1000, 6096,
/// 0.96], ...}.
std::vector<HeadPattern> patterns_of(const nlohmann::json& layers, const std::string& file, int64_t layer,
                                     int64_t heads) {
  std::vector<HeadPattern> patterns;
  for (int64_t head = 0; head < heads; ++head) {
    const auto at = nlohmann::json::json_pointer(fmt::format("/{}/{}", layer, head));
    const nlohmann::json found = layers.contains(at) ? layers.at(at) : nlohmann::json();
    const bool sized = found.is_array() && found.size() >= 3 && found[0].is_string() && found[1].is_number_unsigned() &&
                       found[2].is_number_unsigned();
    const std::string kind = sized ? found[0].get<std::string>() : "";
    if (kind != "vertical_and_slash" && kind != "stream_llm") {
      fail({.place = fmt::format("{}: layer {}, head {}", file, layer, head),
            .found = brief(found),
            .expected = "[\"vertical_and_slash\" or \"stream_llm\", a size, a size, ...]",
            .action = "take the file that was searched for this model, or leave \"pattern\" out"});
    }
    patterns.push_back({.streams = kind == "stream_llm", .vertical = found[1], .slash = found[2]});
  }
  return patterns;
}

/// Vertical-slash: each head's queries attend to some columns of keys and along some diagonals, which the prompt's last
/// 64 queries show. With p their attention,
///   columns    the `vertical` largest of sum_i p[i, j], the first 30 always among them
///   diagonals  the `slash` largest of sum_i p[i, i + x], the nearest 100 always among them
/// and for a block of 64 queries a diagonal is the block of 64 keys that it ends in, neighbouring ones in one range;
/// columns outside the ranges are attended to entry by entry. Jiang et al. 2024, MInference, arXiv:2407.02490, section
/// 3.2 and algorithm 1; vertical_and_slash_kernel and csrc/vertical_slash_index.cu of microsoft/MInference (fb56c91),
/// whose default sizes these are. `pattern` reads the authors' files of sizes by head and kinds, of which published
/// ones name two: vertical-slash and A-shape ("stream_llm"); their block-sparse kind and the search itself are left
/// out.
class MInference final : public PrefillPattern {
 public:
  void parameters(ParameterVisitor& p) override {
    p("vertical", vertical_).min(30).doc("columns of keys that a head attends to");
    p("slash", slash_).min(50).doc("diagonals that a head attends to");
    p("pattern", pattern_).doc("file of kinds and sizes by layer and head; empty = vertical and slash for all");
  }

  PromptRanges attended(const LayerContext& layer, const LayerQueries& queries) const override {
    const EntrySegment& entries = layer.cache.tail();
    const int64_t n = queries.q_len, heads = entries.shape().q_heads;
    std::vector<HeadPattern> patterns(static_cast<size_t>(heads), {.vertical = vertical_, .slash = slash_});
    if (!pattern_.empty()) {
      std::call_once(read_, [&] { layers_ = parse_json(read_file(pattern_), pattern_); });
      patterns = patterns_of(layers_, pattern_, layer.layer, heads);
    }
    if (std::ranges::all_of(patterns, [&](const HeadPattern& head) { return head.slash >= n; })) return {};

    PromptRanges ranges = streamed(patterns, n);
    for (int64_t first = 0; first < n; first += kBlock) {
      RowRanges& block = ranges.emplace_back();
      block.first = first;
      block.count = std::min(kBlock, n - first);
      block.heads.resize(patterns.size());
    }
    const auto blocks = std::span(ranges).last(static_cast<size_t>(blocks_of(n, kBlock)));
    for (int64_t head = 0; head < heads; ++head) {
      if (!patterns[head].streams) choose(entries, queries, patterns[head], head, blocks);
    }
    return ranges;
  }

 private:
  static constexpr int64_t kLast = 64;      // queries that show the pattern
  static constexpr int64_t kFirst = 30;     // columns always attended to
  static constexpr int64_t kNearest = 100;  // diagonals always attended to

  /// Ranges of all rows of the heads that attend to first entries and a window; none where no head does.
  static PromptRanges streamed(const std::vector<HeadPattern>& patterns, int64_t n) {
    PromptRanges ranges;
    for (size_t head = 0; head < patterns.size(); ++head) {
      if (!patterns[head].streams) continue;
      const auto sinks = static_cast<int32_t>(std::min(patterns[head].vertical, n)), end = static_cast<int32_t>(n);
      RowRanges first{.first = 0, .count = n, .heads = std::vector<std::vector<EntryRange>>(patterns.size())};
      RowRanges newest = first;
      first.heads[head] = {{0, sinks}};
      newest.heads[head] = {{sinks, end}};
      newest.window = patterns[head].slash;
      ranges.push_back(std::move(first));
      ranges.push_back(std::move(newest));
    }
    return ranges;
  }

  static void choose(const EntrySegment& entries, const LayerQueries& queries, const HeadPattern& pattern, int64_t head,
                     std::span<RowRanges> blocks) {
    const int64_t n = queries.q_len, rows = std::min(kLast, n);
    const std::vector<float> attention = last_attention(entries, queries, head, rows);
    const std::vector<int32_t> columns =
        select_best(column_sums(attention, rows), std::max(pattern.vertical, kFirst), {.sinks = kFirst});
    std::vector<int32_t> offsets = select_best(diagonal_sums(attention, rows), pattern.slash, {.recent = kNearest});
    for (int32_t& offset : offsets) offset = static_cast<int32_t>(n - 1 - offset);
    for (RowRanges& block : blocks) {
      block.heads[head] =
          with_columns(along_diagonals(offsets, block.first + kBlock), columns, block.first + block.count);
    }
  }

  int64_t vertical_ = 1000;
  int64_t slash_ = 6096;
  std::string pattern_;
  mutable std::once_flag read_;
  mutable nlohmann::json layers_;  // of the file
};

KVARENA_PREFILL(MInference, {.name = "minference",
                             .title = "MInference",
                             .summary = "Heads attend to columns and diagonals that the last queries show.",
                             .paper = "arXiv:2407.02490, section 3.2"});

}  // namespace
}  // namespace kvarena
