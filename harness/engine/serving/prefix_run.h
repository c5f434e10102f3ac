#pragma once
// Remote prefix caching on the measured clock: requests whose prompts' caches lie in a store, behind a fast link from
// the local pool of devices and a slow one from the remote pool. Yao et al. 2026, arXiv:2605.17613, sections 4.2.2 and
// 5.3, Appendix B.2.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cost_model/remote_prefix.h"
#include "harness/engine/serving/prefix_pool.h"
#include "harness/engine/session/verify_session.h"

namespace kvarena {

/// A prompt whose cache, of all but its last token, lies in a store: whole, as a method leaves it, and what that lacks
/// of the whole (remaining_cache.h). Null: not there.
struct StoredPrompt {
  std::vector<int32_t> tokens;
  std::shared_ptr<const ModelFacts> facts;
  const Method* method = nullptr;  // must outlive it
  std::shared_ptr<const storage::Block> full;
  std::shared_ptr<const storage::Block> compressed;
  std::shared_ptr<const storage::Block> rest;
};

/// Reads `prompt` but for its last token and stores what stored_cache.h makes of it; null `method`: the whole alone;
/// null `store`: in main memory. Throws UserError as these do, and for prompts of less than two tokens.
[[nodiscard]] StoredPrompt store_prompt(Transformer& model, std::span<const int32_t> prompt, const Method* method,
                                        std::shared_ptr<const ModelFacts> facts, storage::Storage* store = nullptr);

/// How a request gets at its prompt's cache.
enum class PrefixUse {
  path,        // by a path of harness/cost_model/remote_prefix.h
  compressed,  // to the remote pool, where it decodes on the compressed cache: lossy
  recompute,   // not at all: the remote pool reads the prompt
};

struct PrefixRequest {
  size_t prompt = 0;  // which of the stored ones
  PrefixUse use = PrefixUse::path;
  cost_model::Path path = cost_model::Path::remote;
  double arrival_s = 0;  // since the run began
};

struct PrefixRunSettings {
  PrefixPool local, remote;
  /// After each pass: tokens that were drafted so far, by all requests. For tests.
  std::function<void(int64_t drafted)> passed;
  /// When a load begins: whose, whether on a link of the local pool, in which iteration. For tests.
  std::function<void(size_t request, bool local, int64_t iteration)> loads;
  /// Expected of each pass, in place of what passes take. For tests.
  std::optional<double> iteration_seconds;
};

/// Outcome of a request. Seconds are since its arrival; 0: never.
struct PrefixAnswer {
  std::unique_ptr<VerifySession> session;  // null where it failed before it had a cache
  std::string failure;
  PrefixUse use = PrefixUse::path;  // recompute also where the store lacked a copy
  double first_draft_s = 0;
  double first_token_s = 0;  // verified, where anything verifies
  double end_s = 0;
};

struct PrefixRun {
  std::vector<PrefixAnswer> answers;  // by request
  std::vector<double> pass_seconds;
  double seconds = 0;         // from the first arrival to the last end
  double moving_s = 0;        // of these, while a cache was on its way
  double waiting_s = 0;       // of these, without a pass: what computing did not hide
  int64_t peak_bytes = 0;     // of caches and of what came for them, on all devices
  int64_t late_verifies = 0;  // full caches that were there later than the iteration that they were to verify in
  storage::LinkTotals local;  // of all the pool's links
  storage::LinkTotals remote;
};

/// Requests of stored prompts, in order of arrival. A request is admitted when the pool that decodes it has room and
/// then goes its path: the compressed cache comes over the slow link and the remote pool drafts; meanwhile the full one
/// comes over the fast link, verifies when it is there, and stays (cached) or comes again for each round (stateless).
/// With streaming what the compressed cache lacks follows over the slow link, and once it is there the remote pool
/// completes its cache and decodes plainly.
///
/// Each device has rings of its link's time and of its room (cost_model/resource_rings.h). A load at arrival, or what
/// follows one, takes the earliest iterations that they leave; a verification's is placed so that it has come when the
/// drafts end, or as near to that as can be, and takes a place of the local pool from then on alone.
///
/// One device computes for both pools here: a pass feeds whoever can be fed, whichever pool that stands for. Links take
/// the time that they take, tokens cross for nothing. `verifier`: for paths that verify, whose drafts the method's
/// cache makes. A load that fails ends its request, with the reason; where the store lacks a copy that the path needs,
/// the request recomputes.
[[nodiscard]] PrefixRun run_prefixes(Transformer& model, std::span<const StoredPrompt> prompts,
                                     const Verifier* verifier, const SessionOptions& options,
                                     const PrefixRunSettings& settings, std::span<const PrefixRequest> requests);

}  // namespace kvarena
