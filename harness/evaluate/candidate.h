#pragma once
// A method on its way through a request.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/engine/session/prefill.h"
#include "harness/engine/session/selection_meter.h"
#include "harness/engine/session/session.h"
#include "harness/engine/stored/prefill_folder.h"
#include "harness/evaluate/evaluated_method.h"
#include "harness/evaluate/request.h"

namespace kvarena::evaluate {

/// Keeps everything and takes no part in any pass.
class FullKv final : public Method {
 public:
  [[nodiscard]] HookAccess reach() const override { return HookAccess::nothing; }
};

struct Candidate {
  const Method* method = nullptr;
  bool retrieves = false;
  const Request* request = nullptr;
  std::optional<std::vector<int32_t>> forced;          // tokens that are fed whatever the model says
  const std::vector<int32_t>* departs_from = nullptr;  // an answer that `forced` may be next; null: no second session
  bool last = false;                                   // whether no other request begins with what it begins with
  LogitsSink on_logits;                   // called again with the same logits where a session has to be repeated
  std::unique_ptr<SelectionMeter> meter;  // of the session; null unless the request asks
  std::unique_ptr<Session> session;       // the last
  std::string failure;
  double seconds = 0;
};

/// Reads the request's prompt with what methods ask of it. `prefills`: where it may have been stored; null: nowhere.
[[nodiscard]] Prefill read_prompt(Transformer& model, const Request& request, const Needs& needs,
                                  const PrefillFolder* prefills = nullptr);

/// Bytes that full KV holds of a prompt: without entries behind windows, which a prompt keeps where a method asks for
/// them.
[[nodiscard]] int64_t full_bytes(const Prefill& prompt);

/// Gives each candidate a session that begins with the prompt, and runs them in shared passes, beside a request over
/// `neighbour` when that is given. Should one throw, each is run again by itself, so that only the one that threw
/// fails.
void run_candidates(Transformer& model, const Prefill& prompt, std::vector<Candidate*> candidates,
                    const Prefill* neighbour = nullptr);

}  // namespace kvarena::evaluate
