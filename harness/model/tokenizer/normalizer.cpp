#include "harness/model/tokenizer/normalizer.h"

#include <algorithm>

#include "harness/model/tokenizer/regex.h"
#include "harness/model/tokenizer/replace.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

constexpr TextBounds kBounds{.component = "normalizer", .bytes = size_t{256} << 20U};

template <class F>
void each_code_point(std::string_view text, F visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    visit(c.value);
    at += c.length;
  }
}

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(unicode::Form form) : form_(form) {}
  void apply(std::string& text) const override { text = unicode::normalize(text, form_); }
  bool keeps(std::string_view text) const override {
    if (form_ == unicode::Form::nfc) return unicode::is_surely_nfc(text);
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    each_code_point(text, [&](uint32_t c) { unicode::append_lowercase(out, c); });
    text = std::move(out);
  }
};

/// Drops the marks of a text that has been decomposed before.
class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    each_code_point(text, [&](uint32_t c) {
      if ((unicode::classes(c) & unicode::kMark) == 0) append_utf8(out, c);
    });
    text = std::move(out);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t begin = text.size();
    size_t end = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      if ((unicode::classes(c.value) & unicode::kSpace) == 0) {
        begin = std::min(begin, at);
        end = at + c.length;
      }
      at += c.length;
    }
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    text = begin < end ? text.substr(begin, end - begin) : std::string();
  }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string& text) const override { replace_all(text, from_, to_, kBounds); }

 private:
  std::string from_;
  std::string to_;
};

class RegexReplace final : public Normalizer {
 public:
  RegexReplace(const std::string& pattern, std::string to, const std::string& place)
      : regex_(pattern, place), to_(std::move(to)) {}
  void apply(std::string& text) const override {
    std::string out;
    size_t done = 0;
    regex_.each_match(text, [&](size_t begin, size_t end) {
      out.append(text, done, begin - done);
      out += to_;
      done = end;
      kBounds.check(out);
    });
    out.append(text, done, std::string::npos);
    text = std::move(out);
  }

 private:
  TokenizerRegex regex_;
  std::string to_;
};

/// The Han blocks of the original BERT; other scripts' characters are left alone.
bool is_han(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertOptions options) : options_(options) {}
  void apply(std::string& text) const override {
    if (options_.clean_text) clean(text);
    if (options_.handle_chinese_chars) separate_han(text);
    if (options_.strip_accents) strip_accents(text);
    if (options_.lowercase) Lowercase().apply(text);
  }

 private:
  static void clean(std::string& text) {
    std::string out;
    each_code_point(text, [&](uint32_t c) {
      const bool blank = c == '\t' || c == '\n' || c == '\r';
      const bool control = !blank && (unicode::classes(c) & unicode::kOtherCategory) != 0;
      if (c == 0 || c == 0xfffd || control) return;
      if (blank || (unicode::classes(c) & unicode::kSpace) != 0) {
        out.push_back(' ');
      } else {
        append_utf8(out, c);
      }
    });
    text = std::move(out);
  }

  static void separate_han(std::string& text) {
    std::string out;
    each_code_point(text, [&](uint32_t c) {
      if (is_han(c)) out.push_back(' ');
      append_utf8(out, c);
      if (is_han(c)) out.push_back(' ');
    });
    text = std::move(out);
  }

  static void strip_accents(std::string& text) {
    const std::string decomposed = unicode::normalize(text, unicode::Form::nfd);
    text.clear();
    each_code_point(decomposed, [&](uint32_t c) {
      if (!unicode::is_nonspacing_mark(c)) append_utf8(text, c);
    });
  }

  BertOptions options_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text) const override {
    for (const NormalizerPtr& part : parts_) part->apply(text);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(parts_.begin(), parts_.end(), [&](const NormalizerPtr& part) { return part->keeps(text); });
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

}  // namespace

NormalizerPtr make_unicode_normalizer(unicode::Form form) { return std::make_unique<UnicodeNormalizer>(form); }
NormalizerPtr make_lowercase() { return std::make_unique<Lowercase>(); }
NormalizerPtr make_strip_accents() { return std::make_unique<StripAccents>(); }
NormalizerPtr make_strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr make_prepend(std::string prefix) { return std::make_unique<Prepend>(std::move(prefix)); }
NormalizerPtr make_replace(std::string from, std::string to) {
  return std::make_unique<Replace>(std::move(from), std::move(to));
}
NormalizerPtr make_regex_replace(const std::string& pattern, std::string to, const std::string& place) {
  return std::make_unique<RegexReplace>(pattern, std::move(to), place);
}
NormalizerPtr make_bert_normalizer(BertOptions options) { return std::make_unique<BertNormalizer>(options); }
NormalizerPtr make_sequence(std::vector<NormalizerPtr> parts) { return std::make_unique<Sequence>(std::move(parts)); }

}  // namespace kvarena
