#include "harness/engine/session/request_bytes.h"

#include "harness/engine/serving/scheduled_decoding.h"
#include "kernels/cells/cells.h"

namespace kvarena {
namespace {

/// A method's bytes beside its entries: positions, scores, page bounds, in vectors that grow by halves.
constexpr double kMetadata = 1.5;

}  // namespace

int64_t full_cache_bytes(const Transformer& model, int64_t tokens) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < model.config().layers; ++layer) {
    const LayerShape& shape = model.layer_shape(layer);
    const int64_t run = kernels::cell_bytes(tokens, shape.head_dim, shape.dtype);
    bytes += 2 * shape.kv_heads * (run + run / 64);  // as an EntrySegment grows
  }
  return bytes;
}

int64_t growth_bytes(const Transformer& model, int64_t prompt, int64_t answer) {
  const int64_t cells = kernels::kCell;  // every cache may open a cell
  return static_cast<int64_t>(kMetadata * static_cast<double>(full_cache_bytes(model, prompt + answer + cells) -
                                                              full_cache_bytes(model, prompt)));
}

/// The prompt's cache, the session's own, which begins as a copy of it, and that of a verifier's drafts; beside them, a
/// method's codes of one layer or its index of all.
int64_t bytes_to_start(const Transformer& model, const Method& method, int64_t prompt, int64_t answer) {
  const int64_t caches = method.verifier() == nullptr ? 1 : 2;
  const int64_t full = full_cache_bytes(model, prompt);
  return full + full / 2 + caches * (full + growth_bytes(model, prompt, answer));
}

/// Both caches of a verifier grow, unless one lies behind the device.
int64_t bytes_to_end(const Transformer& model, const Method& method, const Session& session, int64_t held,
                     int64_t prompt, int64_t answer) {
  const int64_t caches = method.verifier() == nullptr || has_schedule(method) ? 1 : 2;
  return held + session.passing_bytes() + caches * growth_bytes(model, prompt, answer);
}

}  // namespace kvarena
