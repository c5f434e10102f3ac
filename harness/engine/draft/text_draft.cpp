#include "harness/engine/draft/text_draft.h"

#include <algorithm>

#include "harness/core/error.h"
#include "harness/model/pass_checks.h"
#include "harness/model/tokenizer/utf8.h"

namespace kvarena {
namespace {

std::string bytes_of(const Tokenizer& tokenizer, int32_t id, bool first) {
  return id < tokenizer.vocab_size() ? tokenizer.token_bytes(id, first) : std::string();
}

/// Bytes of `text` before a character that is not complete.
size_t whole_characters(std::string_view text) {
  const size_t start = text.size() < 4 ? 0 : text.size() - 4;
  for (size_t at = start; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    if (step.kind == Utf8Step::Kind::incomplete) return at;
    at += step.length;
  }
  return text.size();
}

/// The tokens of a text that stands inside another. Some tokenizers put a space before whatever they are given: a line
/// break takes it, where it does not join what follows.
std::vector<int32_t> encode_inside(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  const EncodeOptions options{.add_special = false, .parse_special = parse_special};
  const std::vector<int32_t> before = tokenizer.encode("\n", options);
  const std::vector<int32_t> ids = tokenizer.encode("\n" + text, options);
  if (ids.size() < before.size() || !std::equal(before.begin(), before.end(), ids.begin())) {
    return tokenizer.encode(text, options);
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(before.size()), ids.end()};
}

}  // namespace

bool same_vocabulary(const Tokenizer& one, const Tokenizer& other) {
  constexpr int32_t step = 61;  // a prime: no pattern of a vocabulary is stepped over
  const int64_t size = std::min(one.vocab_size(), other.vocab_size());
  for (int32_t id = 0; id < size; id += step) {
    if (one.token_text(id) != other.token_text(id)) return false;
  }
  return true;
}

TextDraft::TextDraft(std::shared_ptr<SharedModel> drafter, const Tokenizer& tokenizer, const Prefill& prompt)
    : shared_(std::move(drafter)),
      model_(&shared_->transformer),
      own_(shared_->tokenizer.get()),
      target_(&tokenizer),
      cache_(model_->make_cache()) {
  require_entries(model_->config(), "draft_model", "drafts by text, which take tokens back,");
  read(prompt.tokens);
  follow_text();
  if (static_cast<int64_t>(ids_.size()) < model_->config().max_position && !ids_.empty()) (void)next_token();
}

void TextDraft::read(std::span<const int32_t> history) {
  for (; read_ < history.size(); ++read_) text_ += bytes_of(*target_, history[read_], text_.empty());
  whole_ = whole_characters(text_);
}

void TextDraft::follow_text() {
  const std::string_view text = std::string_view(text_).substr(0, whole_);
  const auto common = static_cast<size_t>(std::ranges::mismatch(spelled_, text).in1 - spelled_.begin());
  while (!ends_.empty() && ends_.back() > common) {
    ends_.pop_back();
    ids_.pop_back();
  }
  spelled_.resize(ends_.empty() ? 0 : ends_.back());
  const std::string rest(text.substr(spelled_.size()));
  if (!rest.empty()) {
    const std::vector<int32_t> added = ids_.empty() ? own_->encode(rest) : encode_inside(*own_, rest, true);
    size_t at = 0;  // in rest; what a tokenizer adds of its own, or spells otherwise, takes none of it
    for (const int32_t id : added) {
      const std::string bytes = bytes_of(*own_, id, spelled_.empty() && at == 0);
      if (std::string_view(rest).substr(at).starts_with(bytes)) at += bytes.size();
      ids_.push_back(id);
      ends_.push_back(spelled_.size() + at);
    }
    if (!ends_.empty()) ends_.back() = whole_;
    spelled_ += rest;
  }
  cache_.truncate(std::min<int64_t>(cache_.length, static_cast<int64_t>(ids_.size())));
}

int32_t TextDraft::next_token() {
  const std::lock_guard turn(shared_->turn);
  constexpr int64_t chunk = 512;
  const auto count = static_cast<int64_t>(ids_.size());
  if (cache_.length == count) cache_.truncate(count - 1);
  std::span<const float> logits;
  while (cache_.length < count) {
    const SequencePass pass{.tokens = std::span(ids_).subspan(cache_.length, std::min(chunk, count - cache_.length)),
                            .cache = &cache_,
                            .hooks = nullptr,
                            .logits = LogitsRows::last};
    logits = model_->forward({&pass, 1});
  }
  const auto rows = static_cast<size_t>(std::min(own_->vocab_size(), model_->config().vocab_size));
  return static_cast<int32_t>(std::ranges::max_element(logits.first(rows)) - logits.begin());
}

void TextDraft::begin(const DraftRound& round) {
  drafts_.clear();
  read(round.history);
  if (whole_ < text_.size()) return;  // what completes a character has no text of its own
  follow_text();
  for (int64_t i = 0; i < round.limit; ++i) {
    if (ids_.empty() || static_cast<int64_t>(ids_.size()) >= model_->config().max_position) break;
    const int32_t id = next_token();
    if (own_->is_special(id)) break;  // it means something else, or nothing, to the target
    ids_.push_back(id);
    spelled_ += bytes_of(*own_, id, false);
    ends_.push_back(spelled_.size());
  }
  for (const int32_t token : proposed()) {
    if (static_cast<int64_t>(drafts_.size()) == round.limit) break;
    drafts_.push_back({.token = token});
  }
}

std::vector<int32_t> TextDraft::proposed() const {
  std::string text = spelled_.substr(whole_);
  text.resize(whole_characters(text));
  std::vector<int32_t> tokens;
  size_t at = 0;
  for (const int32_t token : encode_inside(*target_, text, false)) {
    const std::string bytes = bytes_of(*target_, token, false);
    if (bytes.empty() || !std::string_view(text).substr(at).starts_with(bytes)) break;
    tokens.push_back(token);
    at += bytes.size();
  }
  return tokens;
}

}  // namespace kvarena
