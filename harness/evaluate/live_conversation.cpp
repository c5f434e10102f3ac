#include "harness/evaluate/live_conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>

#include "datasets/conversation.h"
#include "datasets/prompt.h"
#include "harness/core/error.h"
#include "harness/core/failure.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/evaluate/candidate.h"
#include "harness/evaluate/describe.h"
#include "harness/evaluate/token_overlap.h"

namespace kvarena::evaluate {
namespace {

using experiment::SampleOutcome;

/// One conversation. Does not move: its request points to its sample, its candidate to its request.
struct Conversation {
  Conversation(const Request& first, const Method& method) : sample(*first.sample), request(first) {
    candidate.method = &method;
    candidate.request = &request;
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  datasets::Sample sample;      // with what was said so far
  Request request;              // for the next answer
  std::optional<Prefill> anew;  // the prompt of its context, where that is not the first one
  Candidate candidate;
  std::vector<std::string> answers;
  std::vector<int32_t> tokens;      // of all answers
  std::vector<VerifyRound> rounds;  // of all sessions
  std::string record;
  bool over = false;
};

/// Makes the request of what was said so far.
void ask_on(Conversation& talk) {
  auto continued = std::move(talk.request.continued);
  talk.request = continued(talk.sample);
  talk.request.continued = std::move(continued);
}

/// Begins a context with those messages.
void begin_anew(Conversation& talk, Transformer& model, std::vector<datasets::Message> messages) {
  talk.sample.messages = std::move(messages);
  talk.sample.question = {.message = talk.sample.messages.size() - 1, .byte = 0};
  talk.sample.turns.clear();
  talk.sample.results.clear();
  ask_on(talk);
  talk.candidate.session.reset();  // which reads the meter, as that does the prompt
  talk.candidate.meter.reset();
  talk.anew.reset();
  talk.anew.emplace(read_prompt(model, talk.request, combine({.sliding = false}, talk.candidate.method->asks())));
  talk.anew->compressed = std::make_shared<CompressedPrompts>();
}

/// Takes the session's answer and asks behind it, unless the conversation is over.
void go_on(Conversation& talk, Transformer& model) {
  const Session& session = *talk.candidate.session;
  talk.tokens.insert(talk.tokens.end(), session.tokens.begin(), session.tokens.end());
  talk.rounds.insert(talk.rounds.end(), session.rounds.begin(), session.rounds.end());
  talk.answers.push_back(datasets::strip(answer_text(talk.request, session.tokens)));
  datasets::LiveReply reply = talk.sample.live.reply(talk.answers);
  talk.record = std::move(reply.record);
  talk.over = reply.over();
  if (talk.over) return;
  if (!reply.anew.empty()) return begin_anew(talk, model, std::move(reply.anew));
  const std::vector<int32_t> prompt = std::move(talk.request.prompt);
  datasets::add_turn(talk.sample, talk.answers.back(), reply.message, std::move(reply.results));
  ask_on(talk);
  if (talk.request.prompt == prompt) return;
  fail({.place = fmt::format("sample {}", talk.sample.id),
        .found = "a chat template that changes what was said before",
        .expected = "one that leaves it as it is, so that a cache can go on with it"});
}

/// Converses until all conversations are over or have failed. `on_answer` is called before each goes on.
void converse(Transformer& model, const Prefill& prompt, std::deque<Conversation>& talks, const Prefill* neighbour,
              const std::function<void(const Conversation&)>& on_answer = {}) {
  std::vector<Conversation*> open;
  for (Conversation& talk : talks) open.push_back(&talk);
  while (!open.empty()) {
    std::vector<Candidate*> together;
    for (Conversation* talk : open) {
      if (!talk->anew) together.push_back(&talk->candidate);
    }
    run_candidates(model, prompt, together, neighbour);
    for (Conversation* talk : open) {
      if (talk->anew) run_candidates(model, *talk->anew, {&talk->candidate}, neighbour);
    }
    for (Conversation* talk : open) {
      if (!talk->candidate.failure.empty()) continue;
      if (on_answer) on_answer(*talk);
      talk->candidate.failure = failure_of([&] { go_on(*talk, model); });
    }
    std::erase_if(open, [](const Conversation* talk) { return talk->over || !talk->candidate.failure.empty(); });
  }
}

/// One answer of full KV's.
struct FullAnswer {
  std::vector<int32_t> question;  // that it follows
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
};

/// Finds the answers in what is fed behind the first question. An answer's text may have other tokens than it was
/// generated with, and what ends it is not fed: steps count as far as they are the same.
void place_steps(LiveReference& reference, std::vector<FullAnswer> answers) {
  const std::vector<int32_t>& whole = answers.back().question;
  const auto first = static_cast<std::ptrdiff_t>(answers.front().question.size());
  reference.forced.assign(whole.begin() + std::min(first, std::ssize(whole)), whole.end());
  std::ranges::copy(answers.back().tokens, std::back_inserter(reference.forced));
  for (FullAnswer& answer : answers) {
    const bool there = answer.question.size() <= whole.size() &&
                       std::equal(answer.question.begin(), answer.question.end(), whole.begin());
    if (!there) continue;  // a chat template that opens an answer otherwise than it repeats it
    int64_t place = std::ssize(answer.question) - first;
    for (size_t i = 0; i < answer.logits.size() && place < std::ssize(reference.forced); ++i, ++place) {
      reference.steps.push_back({place, answer.tokens[i], std::move(answer.logits[i])});
      if (reference.forced[static_cast<size_t>(place)] != answer.tokens[i]) break;
    }
  }
}

/// Compares a candidate's logits along full KV's conversation.
LogitsSink compare_along(const LiveReference& reference, const Request& request,
                         std::vector<metrics::StepDivergence>& steps) {
  return [&](int64_t place, std::span<const float> row) {
    if (steps.size() == reference.steps.size() || reference.steps[steps.size()].place != place) return;
    const LiveStep& step = reference.steps[steps.size()];
    steps.push_back(metrics::step_divergence(std::span<const float>(step.logits), row, step.token,
                                             kl_temperature(request.sampling)));
  };
}

/// The outcome of a conversation that is over, without its distance from full KV.
SampleOutcome said(Conversation& talk, const Request& first, const LiveReference& reference) {
  Session& last = *talk.candidate.session;
  last.tokens = talk.tokens;
  last.rounds = std::move(talk.rounds);
  Request request = first;
  request.thinking = {};  // is told apart in one answer alone
  SampleOutcome outcome = outcome_of(last, request, talk.record, reference.record,
                                     talk.anew ? full_bytes(*talk.anew) : reference.answers.bytes);
  add_departure(outcome.result, talk.tokens, reference.answers);
  return outcome;
}

}  // namespace

LiveReference converse_with_full(Transformer& model, const Prefill& prompt, const Request& request) {
  static const FullKv full;  // outlives the prompt
  std::deque<Conversation> talks;
  Conversation& talk = talks.emplace_back(request, full);
  std::vector<FullAnswer> answers(1);
  talk.candidate.on_logits = [&](int64_t step, std::span<const float> row) {
    if (talk.anew) return;
    answers.back().logits.resize(static_cast<size_t>(step));
    answers.back().logits.emplace_back(row.begin(), row.end());
  };
  converse(model, prompt, talks, nullptr, [&](const Conversation& answered) {
    if (answered.anew) return;
    answers.back().question = answered.request.question;
    answers.back().tokens = answered.candidate.session->tokens;
    answers.emplace_back();
  });
  if (!talk.candidate.failure.empty()) throw UserError(talk.candidate.failure);
  answers.pop_back();
  LiveReference reference{.answers = {}, .record = talk.record, .forced = {}, .steps = {}};
  reference.answers.tokens = talk.tokens;
  reference.answers.bytes = full_bytes(prompt);
  place_steps(reference, std::move(answers));
  return reference;
}

std::vector<SampleOutcome> evaluate_live(const LiveReference& reference, Transformer& model, const Prefill& prompt,
                                         const Request& request, std::span<const EvaluatedMethod> methods,
                                         const Prefill* neighbour) {
  std::deque<Conversation> talks;
  for (const EvaluatedMethod& evaluated : methods) {
    talks.emplace_back(request, *evaluated.method).candidate.retrieves = evaluated.retrieves;
  }
  converse(model, prompt, talks, neighbour);

  std::vector<SampleOutcome> outcomes(methods.size());
  std::vector<std::vector<metrics::StepDivergence>> steps(methods.size());
  std::vector<Candidate*> along;
  for (size_t i = 0; i < methods.size(); ++i) {
    Candidate& candidate = talks[i].candidate;
    if (!candidate.failure.empty()) continue;
    outcomes[i] = said(talks[i], request, reference);
    outcomes[i].result.active = methods[i].reference || candidate.session->activity.acted();
    candidate.request = &request;
    candidate.forced = reference.forced;
    candidate.on_logits = compare_along(reference, request, steps[i]);
    along.push_back(&candidate);
  }
  run_candidates(model, prompt, along, neighbour);

  TokenOverlaps overlaps(model, request);
  for (size_t i = 0; i < methods.size(); ++i) {
    const Candidate& candidate = talks[i].candidate;
    outcomes[i].failure = candidate.failure;
    if (!candidate.failure.empty()) continue;
    if (!steps[i].empty()) add_divergence(outcomes[i].result, steps[i]);
    if (candidate.meter) {
      add_selections(outcomes[i].result, *candidate.meter, static_cast<int64_t>(request.prompt.size()));
    }
    if (request.token_overlaps) overlaps.add_to(outcomes[i].result, methods[i]);
    outcomes[i].result.wall_s = candidate.seconds;
  }
  return outcomes;
}

}  // namespace kvarena::evaluate
