#include "harness/cli/skeletons.h"

#include <algorithm>
#include <cctype>

namespace kvarena::cli {
namespace {

constexpr std::string_view kDropping = R"(#include <ATen/ATen.h>

#include "harness/method/scorer.h"

namespace kvarena {
namespace {

/// Entries with small keys matter:  S[j,i] = -|k[j,i]|.  Put your formula and its source here and in score().
class @Class@ final : public Scorer {
 public:
  void parameters(ParameterVisitor& p) override {
    p("recent", recent_).min(0).doc("newest entries, kept whatever their score");
  }
  at::Tensor score(const LayerView& layer) const override { return layer.keys().norm(2, -1).neg(); }
  Protection protect(int64_t /*budget*/) const override { return {.recent = recent_}; }

 private:
  int64_t recent_ = 16;
};

)";

constexpr std::string_view kCodec = R"(#include <fmt/format.h>

#include "harness/method/codec.h"

namespace kvarena {
namespace {

/// Keys per channel and values per token in groups with a minimum and a step. A storage form of your own is a class
/// derived from PackedSegment, which a Codec's make_segment() returns.
class @Class@ final : public QuantizingCodec {
 public:
  void parameters(ParameterVisitor& p) override {
    p("bits", bits_).min(1).max(4).doc("bits of a key or value");
    p("recent", recent_).min(32).doc("newest entries in 16 bits, a multiple of 32; keys leave in blocks of it");
  }
  void check(const std::string& place, std::vector<std::string>& problems) const override {
    if (recent_ % kGroup == 0) return;
    problems.push_back(fmt::format("{}.recent: found {}, expected a multiple of 32", place, recent_));
  }
  QuantizedFormat format(const LayerContext& /*layer*/) const override {
    const kernels::QuantFormat side{.bits = static_cast<int>(bits_), .group_size = kGroup, .meta = DType::bf16};
    return {.keys = side, .values = side};
  }
  int64_t key_block() const override { return recent_; }
  int64_t value_residual() const override { return recent_; }

 private:
  static constexpr int64_t kGroup = 32;  // elements that share a minimum and a step

  int64_t bits_ = 4;
  int64_t recent_ = 64;
};

)";

constexpr std::string_view kRetrieval = R"(#include <algorithm>
#include <numeric>

#include "harness/method/head_lists.h"
#include "harness/method/retriever.h"

namespace kvarena {
namespace {

constexpr int64_t kBlock = 16;  // entries that one landmark stands for

/// The mean key of every block of every kv head.
struct Landmarks final : public LayerIndex {
  explicit Landmarks(HeadLists<float> means) : heads(std::move(means)) {}

  HeadLists<float> heads;  // [kv_heads][blocks, head_dim]

  [[nodiscard]] int64_t bytes() const override { return heads.bytes(); }
  [[nodiscard]] std::unique_ptr<LayerIndex> clone(const LedgerPtr& ledger) const override {
    return std::make_unique<Landmarks>(HeadLists(heads, ledger));
  }
};

/// Blocks whose mean key agrees most with a query of the group:  S[j,b] = max over h in group j of q[h] . mean[j,b].
/// Put your formula and its source here, in extend() and in select().
class @Class@ final : public Retriever {
 public:
  std::unique_ptr<LayerIndex> make_index(const LayerShape& shape, const LedgerPtr& ledger) const override {
    return std::make_unique<Landmarks>(HeadLists<float>(shape.kv_heads, ledger));
  }

  void extend(LayerIndex& index, const EntrySegment& entries, int64_t end) const override {
    const int64_t dim = entries.shape().head_dim;
    const int64_t first = index.entries / kBlock;  // the newest block may have grown
    std::vector<float> keys(static_cast<size_t>(entries.entries(0) * dim));
    for (int64_t head = 0; head < entries.shape().kv_heads; ++head) {
      entries.read(head, keys.data(), nullptr);
      auto& means = static_cast<Landmarks&>(index).heads[head];
      means.resize(static_cast<size_t>((end + kBlock - 1) / kBlock * dim));
      std::fill(means.begin() + first * dim, means.end(), 0.0F);
      for (int64_t i = first * kBlock; i < end; ++i) {
        const auto size = static_cast<float>(std::min(kBlock, end - i / kBlock * kBlock));
        for (int64_t c = 0; c < dim; ++c) means[i / kBlock * dim + c] += keys[i * dim + c] / size;
      }
    }
  }

  Selection select(const LayerIndex& index, const EntrySegment& entries, const LayerQueries& queries,
                   const Candidates& among) const override {
    const LayerShape& shape = entries.shape();
    const int64_t n = index.entries;
    const int64_t blocks = (n + kBlock - 1) / kBlock;
    Selection selection;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const float* means = static_cast<const Landmarks&>(index).heads[head].data();
      std::vector<float> scores(static_cast<size_t>(blocks), -1e30F);
      for (int64_t h = head * shape.group(); h < (head + 1) * shape.group(); ++h) {
        const float* q = queries.q + h * shape.head_dim;
        for (int64_t b = 0; b < blocks; ++b) {
          const float score = std::inner_product(q, q + shape.head_dim, means + b * shape.head_dim, 0.0F);
          scores[b] = std::max(scores[b], score);
        }
      }
      selection.lists.push_back(best(scores, std::clamp<int64_t>(among.count / kBlock, 1, blocks), n));
    }
    return selection;
  }

 private:
  /// Entries of the `wanted` blocks with the largest scores, ascending; equal scores by lower block.
  static std::vector<int32_t> best(const std::vector<float>& scores, int64_t wanted, int64_t n) {
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](int64_t b) { return scores[b]; });
    order.resize(static_cast<size_t>(wanted));
    std::ranges::sort(order);
    std::vector<int32_t> selected;
    for (const int64_t b : order) {
      for (int64_t i = b * kBlock; i < std::min((b + 1) * kBlock, n); ++i) selected.push_back(static_cast<int32_t>(i));
    }
    return selected;
  }
};

)";

constexpr std::string_view kVerification = R"(#include <algorithm>

#include "harness/method/verifier.h"

namespace kvarena {
namespace {

/// Proposes the continuation of an earlier occurrence: looks up the newest tokens, at most `match` of them, in the text
/// so far and proposes the tokens that followed. Put your rule and its source here and in propose(). A verifier that
/// drafts on a compressed cache returns a CompressedCopy from drafter() instead.
class @Class@ final : public Verifier {
 public:
  void parameters(ParameterVisitor& p) override {
    p("draft_length", draft_length_).min(1).doc("tokens proposed before each verification");
    p("match", match_).min(1).doc("newest tokens looked up in the text, fewer where so many are not found");
  }
  int64_t draft_length() const override { return draft_length_; }

  Drafter drafter() const override {
    return TextRule{[this](std::span<const int32_t> history, int64_t limit) { return propose(history, limit); }};
  }

 private:
  std::vector<int32_t> propose(std::span<const int32_t> history, int64_t limit) const {
    const auto n = static_cast<int64_t>(history.size());
    for (int64_t length = std::min(match_, n - 1); length > 0; --length) {
      const auto newest = history.last(static_cast<size_t>(length));
      const auto earlier = history.first(static_cast<size_t>(n - 1));
      const auto found = std::ranges::find_end(earlier, newest);
      if (found.empty()) continue;
      const auto after = history.subspan(static_cast<size_t>(found.end() - earlier.begin()));
      const auto count = std::min<size_t>(after.size(), static_cast<size_t>(limit));
      return {after.begin(), after.begin() + static_cast<int64_t>(count)};
    }
    return {};
  }

  int64_t draft_length_ = 8;
  int64_t match_ = 3;
};

)";

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

/// "my_idea" -> "MyIdea", or "My idea" with a blank for `joint`.
std::string capitalised(const std::string& name, std::string_view joint, bool every_word) {
  std::string text;
  bool start = true;
  for (const char c : name) {
    if (c == '_') {
      text += joint;
      start = every_word;
      continue;
    }
    text += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return text;
}

/// "my_idea", "Scorer" -> "MyIdeaScorer"; names that end as the suffix begins ("my_codec", "my_retrieval") stand alone.
std::string class_of(const std::string& name, std::string_view suffix) {
  const std::string words = capitalised(name, "", true);
  const size_t last = name.rfind('_');
  if (last != std::string::npos) {
    constexpr size_t kStem = 5;
    const std::string word = capitalised(name.substr(last + 1), "", true);
    if (word.substr(0, kStem) == suffix.substr(0, kStem)) return words;
  }
  return words + std::string(suffix);
}

/// The line that registers the class and the end of the file, laid out as scripts/format would.
std::string registration(const Skeleton& skeleton, const std::string& class_name, const std::string& name) {
  const std::array<std::string, 4> fields = {".name = \"" + name + "\",",
                                             ".title = \"" + capitalised(name, " ", false) + "\",",
                                             ".summary = \"" + std::string(skeleton.summary) + "\",", ".paper = \"\","};
  const size_t widest = std::ranges::max(fields, {}, &std::string::size).size();
  const std::string macro = "KVARENA_" + std::string(skeleton.macro) + "(";
  const std::string head = macro + class_name + ",";
  constexpr size_t kColumns = 120;
  const bool beside = head.size() + 5 + widest <= kColumns;
  const std::string margin((beside ? head.size() : macro.size() - 1) + 1, ' ');
  std::string text = head + (beside ? " " : "\n" + margin) + "{\n";
  for (const std::string& field : fields) text += margin + "    " + field + "\n";
  return text + margin + "});\n\n}  // namespace\n}  // namespace kvarena\n";
}

}  // namespace

const std::array<Skeleton, 4>& skeletons() {
  static constexpr std::array<Skeleton, 4> all{{
      {"dropping", "compression", "Scorer", "SCORER", "keeps the entries with the smallest keys",
       "Keeps the entries with the smallest keys.", kDropping},
      {"codec", "compression", "Codec", "CODEC", "stores entries in 4 bits",
       "Stores all but the newest entries in a few bits.", kCodec},
      {"retrieval", "retrieval", "Retriever", "RETRIEVER", "attends to the blocks whose mean keys agree with the query",
       "Attends to the blocks whose mean keys agree with the query.", kRetrieval},
      {"verification", "verification", "Verifier", "VERIFIER", "drafts what followed the same tokens before",
       "Drafts what followed the newest tokens before, and verifies: lossless.", kVerification},
  }};
  return all;
}

std::string fill_skeleton(const Skeleton& skeleton, const std::string& name) {
  std::string text(skeleton.text);
  const std::string class_name = class_of(name, skeleton.suffix);
  replace_all(text, "@Class@", class_name);
  return text + registration(skeleton, class_name, name);
}

}  // namespace kvarena::cli
