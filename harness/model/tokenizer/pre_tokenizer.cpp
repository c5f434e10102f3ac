#include "harness/model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <utility>

#include "harness/model/tokenizer/regex.h"
#include "harness/model/tokenizer/unicode.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

/// Calls visit(begin, end) for each delimiter in a text, left to right.
using Visit = std::function<void(size_t, size_t)>;
using Finder = std::function<void(std::string_view, const Visit&)>;

struct Part {
  uint32_t begin;
  uint32_t end;
  bool match;
};

std::vector<Part> find_parts(std::string_view text, const Finder& find, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (begin < end) parts.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), match != invert});
  };
  find(text, [&](size_t begin, size_t end) {
    add(done, begin, false);
    add(begin, end, true);
    done = end;
  });
  add(done, text.size(), false);
  return parts;
}

/// Joins parts as the behaviour says; what remains are pieces.
std::vector<Part> arrange(const std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Part> out;
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::isolated: return parts;
    case SplitBehavior::removed:
      for (const Part& part : parts) {
        if (!part.match) out.push_back(part);
      }
      return out;
    case SplitBehavior::contiguous:
      for (const Part& part : parts) {
        if (!out.empty() && out.back().match == part.match) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
      }
      return out;
    case SplitBehavior::merged_with_previous:
      for (const Part& part : parts) {
        if (part.match && !previous_match && !out.empty()) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        previous_match = part.match;
      }
      return out;
    case SplitBehavior::merged_with_next:
      for (const Part& part : parts | std::views::reverse) {
        if (part.match && !previous_match && !out.empty()) {
          out.back().begin = part.begin;
        } else {
          out.push_back(part);
        }
        previous_match = part.match;
      }
      return {out.rbegin(), out.rend()};
  }
  return out;
}

class SplitStep final : public PreTokenizer {
 public:
  SplitStep(Finder find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    pieces.spare.clear();
    for (const Piece piece : pieces.list) {
      for (const Part& part : arrange(find_parts(pieces[piece], find_, invert_), behavior_)) {
        pieces.spare.push_back({piece.begin + part.begin, piece.begin + part.end});
      }
    }
    pieces.list.swap(pieces.spare);
  }

 private:
  Finder find_;
  SplitBehavior behavior_;
  bool invert_;
};

template <class Predicate>
Finder each_character(Predicate wanted) {
  return [wanted](std::string_view text, const Visit& visit) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      if (wanted(c.value)) visit(at, at + c.length);
      at += c.length;
    }
  };
}

void find_string(std::string_view text, const std::string& delimiter, const Visit& visit) {
  for (size_t at = text.find(delimiter); at != std::string_view::npos; at = text.find(delimiter, at)) {
    visit(at, at + delimiter.size());
    at += delimiter.size();
  }
}

/// Rewrites each piece through `change` into a new text.
void rewrite(Pieces& pieces, const std::function<void(std::string&, bool)>& change) {
  std::string text;
  pieces.spare.clear();
  for (const Piece piece : pieces.list) {
    std::string part(pieces[piece]);
    change(part, pieces.at_start && piece.begin == 0);
    const auto begin = static_cast<uint32_t>(text.size());
    text += part;
    pieces.spare.push_back({begin, static_cast<uint32_t>(text.size())});
  }
  pieces.rewritten = std::move(text);
  pieces.text = pieces.rewritten;
  pieces.list.swap(pieces.spare);
}

class PrefixSpace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    rewrite(pieces, [](std::string& part, bool) {
      if (!part.starts_with(' ')) part.insert(0, 1, ' ');
    });
  }
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme) {
    if (split) split_ = make_string_split(replacement_, SplitBehavior::merged_with_next, false);
  }

  void apply(Pieces& pieces) const override {
    rewrite(pieces, [&](std::string& part, bool first) {
      std::string out;
      for (const char c : part) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out.push_back(c);
        }
      }
      const bool wanted = scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && first);
      if (wanted && !out.starts_with(replacement_)) out.insert(0, replacement_);
      part = std::move(out);
    });
    if (split_) split_->apply(pieces);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  PreTokenizerPtr split_;
};

class CutBeforeRuns final : public PreTokenizer {
 public:
  explicit CutBeforeRuns(std::string mark) : mark_(std::move(mark)) {}

  void apply(Pieces& pieces) const override {
    pieces.spare.clear();
    for (const Piece piece : pieces.list) {
      const std::string_view text = pieces[piece];
      size_t begin = 0;
      while (begin < text.size()) {
        size_t end = begin;
        while (text.substr(end).starts_with(mark_)) end += mark_.size();
        end = std::min(text.find(mark_, end), text.size());
        pieces.spare.push_back({piece.begin + static_cast<uint32_t>(begin), piece.begin + static_cast<uint32_t>(end)});
        begin = end;
      }
    }
    pieces.list.swap(pieces.spare);
  }

 private:
  std::string mark_;
};

bool is_punctuation(uint32_t c) {
  if ((unicode::classes(c) & unicode::kPunctuation) != 0) return true;
  return c < 0x80 && (unicode::classes(c) & unicode::kSymbol) != 0;  // $ + < = > ^ ` | ~
}

}  // namespace

PreTokenizerPtr make_regex_split(const std::string& pattern, SplitBehavior behavior, bool invert,
                                 const std::string& place) {
  const auto regex = std::make_shared<const TokenizerRegex>(pattern, place);
  return std::make_unique<SplitStep>(
      [regex](std::string_view text, const Visit& visit) { regex->each_match(text, visit); }, behavior, invert);
}

PreTokenizerPtr make_string_split(std::string delimiter, SplitBehavior behavior, bool invert) {
  return std::make_unique<SplitStep>(
      [delimiter = std::move(delimiter)](std::string_view text, const Visit& visit) {
        find_string(text, delimiter, visit);
      },
      behavior, invert);
}

PreTokenizerPtr make_punctuation_split(SplitBehavior behavior) {
  return std::make_unique<SplitStep>(each_character(is_punctuation), behavior, false);
}

PreTokenizerPtr make_white_space_split() {
  const auto is_space = [](uint32_t c) { return (unicode::classes(c) & unicode::kSpace) != 0; };
  return std::make_unique<SplitStep>(each_character(is_space), SplitBehavior::removed, false);
}

PreTokenizerPtr make_prefix_space() { return std::make_unique<PrefixSpace>(); }

PreTokenizerPtr make_cut_before_runs(std::string mark) { return std::make_unique<CutBeforeRuns>(std::move(mark)); }

PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

}  // namespace kvarena
