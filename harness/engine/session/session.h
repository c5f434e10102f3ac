#pragma once
// One request under one method: a state machine that says what to feed next and takes the logits back, so that many
// requests share one ragged forward pass.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/engine/session/shared_pass.h"
#include "harness/method/method.h"
#include "harness/model/sampling.h"

namespace kvarena {

/// When generation ends.
struct StopRule {
  int64_t max_new_tokens = 64;
  std::vector<int32_t> stop_tokens;  // end-of-sequence ids and single-token stops
  /// Called with all new tokens after each; true ends generation (stop strings). Not asked while teacher forcing.
  std::function<bool(std::span<const int32_t> tokens)> stop_when;
};

enum class FinishReason { running, stop, length, failed };
[[nodiscard]] const char* to_string(FinishReason reason);

/// One draft-and-verify round: tokens drafted, tokens of them accepted, tokens emitted (accepted + 1 unless cut).
struct VerifyRound {
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t emitted = 0;
};

/// Bytes of a session's caches at one moment.
struct TierBytes {
  int64_t device = 0;
  int64_t host = 0;
  int64_t disk = 0;
  bool operator==(const TierBytes&) const = default;
};

/// Tokens and counts of a session, which outlive its caches.
struct SessionResult {
  /// New tokens, the stop token included when one was met.
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::running;
  std::string failure;  // why it could not go on; finish is `failed` then
  Activity activity;
  std::vector<VerifyRound> rounds;    // of verification methods
  double bits_per_number = 0;         // of what codecs hold of the cache after the prompt; 0 where they hold nothing
  bool simulated_bytes = false;       // some of its bytes are those of a codec that packs nothing
  int64_t resident_bytes = 0;         // of the method's cache after the prompt, with the entries fetched for a step
  int64_t sliding_bytes = 0;          // of these, those of layers with a sliding window
  int64_t state_bytes = 0;            // of these, of the recurrent states that answer
  int64_t peak_bytes = 0;             // at most, while this session lived
  int64_t peak_host_bytes = 0;        // of the cache on the host, at most
  int64_t peak_disk_bytes = 0;        // on the disk
  std::vector<TierBytes> tier_bytes;  // after the prompt, then after each pass of its cache or round
  std::vector<Traffic> traffic;       // of each pass that moved something
  double compress_seconds = 0;        // from full cache, or from entries of earlier prompts, to the method's
  std::optional<ReuseRecord> reuse;   // of methods that reuse entries
  /// [layers], of such a method's prompt from the full cache (harness/engine/reuse/deviation.h), where that is at hand.
  std::vector<double> deviation;

  [[nodiscard]] bool finished() const { return finish != FinishReason::running; }
};

struct SessionOptions;

class Session : public PassMember, public SessionResult {
 public:
  void failed(const std::string& reason) final {
    failure = reason;
    finish = FinishReason::failed;
  }
  /// Bytes of all its caches, now.
  [[nodiscard]] virtual int64_t held_bytes() const = 0;
  /// Bytes that it may come to hold beside these and its caches' growth, for a time.
  [[nodiscard]] virtual int64_t passing_bytes() const { return 0; }
  /// Takes memory of its own for what it shares with its prompt, for who measures passes: a first write would take it
  /// in the middle of one.
  virtual void stop_sharing() {}
  /// Whether it has the first token but not yet the entries that the next pass attends to.
  [[nodiscard]] virtual bool preparing() const { return false; }
  /// Goes back to where its answer departed from SessionOptions::departs_from and goes on along these tokens, which
  /// `options`, with the same question, force: tokens and logits are those of a new session, what it has counted goes
  /// on. False: it cannot, and stays as it is.
  [[nodiscard]] virtual bool answer_again(SessionOptions options);
};

class SelectionMeter;
class Tokenizer;

struct SessionOptions {
  StopRule stop;
  SamplingSettings sampling;  // greedy by default
  /// Feed these tokens whatever the model predicts (teacher forcing); generation ends with them, or so many new tokens
  /// later.
  std::optional<std::vector<int32_t>> forced;
  int64_t after_forced = 0;
  /// Such tokens that a pass feeds at most, where no part of the session can tell.
  int64_t forced_piece = 1;
  /// Tokens that follow the prompt after it was compressed: a question that the method has not seen. They go through
  /// the session as decoded tokens do, and the first new token follows them. Empty: the question is in the prompt.
  std::vector<int32_t> question;
  std::vector<ResultTokens> results;  // of tools, in prompt and question
  LogitsSink on_logits;               // step 0 is the token after the prompt
  /// The model's, for drafters of another vocabulary; null where there is no text. Must outlive the session.
  const Tokenizer* tokenizer = nullptr;
  /// Tier that holds the full cache between verifications, for a verifier that drafts on a compressed copy
  /// (verify_session.h).
  std::optional<Tier> offload_tier;
  /// Measures the selections of decoding; of a verifier those of the cache that drafts, where one does. Must outlive
  /// the session.
  SelectionMeter* meter = nullptr;
  /// An answer that Session::answer_again() may be asked for: where the session's own departs from it, what that needs
  /// is held back, no bytes of the session. Must outlive the session.
  const std::vector<int32_t>* departs_from = nullptr;

  /// Tokens that the session may emit.
  [[nodiscard]] int64_t most_tokens() const {
    return forced ? static_cast<int64_t>(forced->size()) + after_forced : stop.max_new_tokens;
  }
};

/// Starts `method` from a clone of the prompt's cache, compresses it, and takes the first token from the prompt's
/// logits; with a question its first passes feed that, and the first token follows it. The method must outlive the
/// session.
[[nodiscard]] std::unique_ptr<Session> start_session(Transformer& model, const Prefill& prompt, const Method& method,
                                                     SessionOptions options);

/// Runs a session by itself until it has its first token and decodes: through its question, where it has one, and the
/// pass that prepares a first step.
void run_to_first_token(Transformer& model, Session& session);

/// Runs sessions to their ends, all of them in shared passes (run_pass()). What a session computes does not depend on
/// the others, and one that throws in a pass ends as failed, alone. `on_pass` is called after every pass.
void run_together(Transformer& model, std::span<Session* const> sessions, const std::function<void()>& on_pass = {});

}  // namespace kvarena
