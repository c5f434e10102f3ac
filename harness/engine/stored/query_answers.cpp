#include "harness/engine/stored/query_answers.h"

#include <algorithm>

#include "harness/cache/shared_front.h"
#include "harness/core/error.h"
#include "harness/engine/session/request_bytes.h"

namespace kvarena::stored {

/// One query under way: its prompt first, then its session.
class QueryAnswers::Answering final : public PassMember {
 public:
  Answering(size_t query, std::unique_ptr<PromptRun> prompt) : query_(query), prompt_(std::move(prompt)) {}

  /// Tokens of its next pass, at most `most`.
  int64_t set_tokens(int64_t most) {
    if (session_) return 1;
    const int64_t tokens = std::min(most, prompt_->remaining());
    prompt_->set_chunk(tokens);
    return tokens;
  }
  [[nodiscard]] SequencePass next_pass() override { return session_ ? session_->next_pass() : prompt_->next_pass(); }
  void consume(std::span<const float> logits) override {
    session_ ? session_->consume(logits) : prompt_->consume(logits);
  }
  void failed(const std::string& reason) override { failure_ = reason; }

  /// Starts the session once the prompt is read; whether the answer is there.
  bool goes_on(Transformer& model, const Method& full, const StopRule& stop) {
    if (!failure_.empty()) throw UserError(failure_);
    if (!session_ && prompt_->remaining() == 0) {
      session_ = start_session(model, prompt_->finish(), full, {.stop = stop});
      prompt_.reset();
    }
    if (session_ && !session_->failure.empty()) throw UserError(session_->failure);
    return session_ && session_->finished();
  }
  [[nodiscard]] size_t query() const { return query_; }
  [[nodiscard]] const std::vector<int32_t>& tokens() const { return session_->tokens; }

 private:
  size_t query_;
  std::unique_ptr<PromptRun> prompt_;
  std::unique_ptr<Session> session_;
  std::string failure_;
};

QueryAnswers::QueryAnswers(Transformer& model, std::shared_ptr<const ModelFacts> facts,
                           std::span<const int32_t> context, const KvCache& cache, std::span<const Query> queries)
    : model_(&model),
      facts_(std::move(facts)),
      context_(context),
      cache_(cache.clone()),
      queries_(queries),
      answers_(queries.size()) {
  share_front(cache_);
}

QueryAnswers::~QueryAnswers() = default;

void QueryAnswers::start() {
  const Query& query = queries_[started_];
  std::vector<int32_t> tokens(context_.begin(), context_.end());
  tokens.insert(tokens.end(), query.tokens.begin(), query.tokens.end());
  running_.push_back(
      std::make_unique<Answering>(started_, std::make_unique<PromptRun>(*model_, tokens, facts_, cache_.clone())));
  ++started_;
}

int64_t QueryAnswers::that_fit(int64_t bytes) const {
  int64_t grown = 0;
  for (const Query& query : queries_) grown = std::max(grown, std::ssize(query.tokens) + query.stop.max_new_tokens);
  const int64_t context = std::ssize(context_);
  const int64_t one = full_cache_bytes(*model_, std::min(context, kernels::kChunk) + grown);
  return std::max<int64_t>(0, bytes - full_cache_bytes(*model_, context)) / std::max<int64_t>(1, one);
}

std::vector<PassMember*> QueryAnswers::next(const AnswerRoom& room) {
  const int64_t most = std::min(room.answers, that_fit(room.bytes));
  std::vector<PassMember*> members;
  int64_t left = room.tokens;
  for (size_t i = 0; static_cast<int64_t>(i) < most && left > 0; ++i) {
    if (i == running_.size()) {
      if (started_ == queries_.size()) break;
      start();
    }
    left -= running_[i]->set_tokens(left);
    members.push_back(running_[i].get());
  }
  return members;
}

void QueryAnswers::passed() {
  std::erase_if(running_, [&](const std::unique_ptr<Answering>& one) {
    if (!one->goes_on(*model_, full_, queries_[one->query()].stop)) return false;
    answers_[one->query()] = one->tokens();
    ++answered_;
    return true;
  });
}

std::vector<std::vector<int32_t>> answer_queries(Transformer& model, const std::shared_ptr<const ModelFacts>& facts,
                                                 std::span<const int32_t> context, const KvCache& cache,
                                                 std::span<const Query> queries, const AnswerRoom& room) {
  QueryAnswers answering(model, facts, context, cache, queries);
  while (!answering.finished()) {
    run_pass(model, answering.next(room));
    answering.passed();
  }
  return answering.answers();
}

}  // namespace kvarena::stored
