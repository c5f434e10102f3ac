#include "harness/engine/session/request_bytes.h"

#include <algorithm>

#include "harness/engine/serving/scheduled_decoding.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/method/reuser.h"
#include "harness/method/verifier.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// A method's bytes beside its entries: positions, scores, page bounds, in vectors that grow by halves.
constexpr double kMetadata = 1.5;

/// Caches that are made beside the prompt's full one: a copy on which the prompt is repeated, which grows by as much,
/// and is gone when the session starts; then that of a verifier's drafts and the one that it verifies on, where that is
/// not full KV, or a method's own, unless the full one becomes it in place; chunks of its own and, while they are
/// brought to the prompt, the cache of the pass that scores tokens.
int64_t caches_beside(const Method& method) {
  const Needs needs = method.needs();
  const int64_t repeated = !needs.reconstructions.empty() ? 2 : !needs.restorations.empty() ? 1 : 0;
  if (const Verifier* verifier = method.verifier())
    return std::max<int64_t>(repeated, verifier->verified_cache() ? 2 : 1);
  const Reuser* const reuser = method.reuser();
  const int64_t scoring = reuser != nullptr && reuser->speculative() ? 1 : 0;
  return std::max<int64_t>(repeated, outlives_full_cache(method) ? 0 : 1) + scoring;
}

/// States that a verifier's two caches hold back, and the rows since (RecurrentState::hold()), in vectors that grow by
/// doubling.
int64_t held_state_bytes(const Transformer& model, const Method& method) {
  const int64_t rows = method.verifier() != nullptr ? method.verifier()->draft_length() + 1 : 2;
  int64_t bytes = 0;
  for (const RecurrentShape& shape : model.state_shapes()) {
    bytes += 2 * (shape.bytes() + 2 * rows * shape.row() * static_cast<int64_t>(sizeof(float)));
  }
  return method.verifier() != nullptr || method.looks_ahead() ? bytes : 0;
}

}  // namespace

int64_t full_cache_bytes(const Transformer& model, int64_t tokens) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < model.config().cached_layers(); ++layer) {
    const LayerShape& shape = model.layer_shape(layer);
    const int64_t run = kernels::cell_bytes(tokens, shape.head_dim, shape.dtype);
    bytes += 2 * shape.kv_heads * (run + run / 64);  // as an EntrySegment grows
  }
  for (const RecurrentShape& shape : model.state_shapes()) bytes += shape.bytes();
  return bytes;
}

int64_t growth_bytes(const Transformer& model, int64_t prompt, int64_t answer) {
  const int64_t cells = kernels::kCell;  // every cache may open a cell
  return static_cast<int64_t>(kMetadata * static_cast<double>(full_cache_bytes(model, prompt + answer + cells) -
                                                              full_cache_bytes(model, prompt)));
}

/// The prompt's full cache, which the session goes on with, those beside it, and a method's codes of one layer or its
/// index of all.
int64_t bytes_to_start(const Transformer& model, const Method& method, int64_t prompt, int64_t answer) {
  const int64_t growing = method.verifier() == nullptr ? 1 : 2;
  const int64_t full = full_cache_bytes(model, prompt);
  return full + full / 2 + caches_beside(method) * full + held_state_bytes(model, method) +
         growing * growth_bytes(model, prompt, answer);
}

/// Both caches of a verifier grow, unless one lies behind the device.
int64_t bytes_to_end(const Transformer& model, const Method& method, const Session& session, int64_t held,
                     int64_t prompt, int64_t answer) {
  const int64_t caches = method.verifier() == nullptr || has_schedule(method) ? 1 : 2;
  return held + session.passing_bytes() + held_state_bytes(model, method) +
         caches * growth_bytes(model, prompt, answer);
}

}  // namespace kvarena
