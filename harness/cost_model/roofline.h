#pragma once
// Roofline model of decoding and prefill on described hardware: bytes over bandwidths, operations over FLOP/s,
// whichever takes longest. Everything here is modelled.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "harness/cost_model/hardware.h"
#include "harness/cost_model/model_shape.h"

namespace kvarena {
class ParameterVisitor;
}

namespace kvarena::cost_model {

/// A method's cache of one request, as far as costs go. The defaults are full KV in 16 bits.
struct CacheScheme {
  std::string label = "full KV";
  double bits = 16;                  // bits of a number in the packed part, on the accelerator
  double metadata_bits = 0;          // scales and offsets beside each packed number
  double keep = 1;                   // share of the entries that stays
  std::optional<int64_t> tokens;     // entries that stay, instead of a share; fewer while there are fewer
  int64_t residual = 0;              // newest entries that stay in 16 bits beside the packed part
  std::optional<int64_t> attended;   // entries that a step attends to; all that stay unless given
  double index_bytes_per_entry = 0;  // bytes of the index that selects entries, read each step
  bool offloaded = false;            // a 16-bit copy of every entry lies in host memory
  int64_t fetched = 0;               // entries that come from there each step, in 16 bits
  double fetched_anew = 1;           // share of them that was not fetched for the step before
  double link_share = 1;             // share of the link's rate that scattered entries reach
  bool overlapped = true;            // fetching runs beside the rest of the step
  bool selects_prompt = false;       // `attended` counts entries of the prompt; generated ones are attended to as well
  /// Layers whose entries lie in host memory, but for the attended ones: "none", "all", or "as needed": as many as the
  /// memory asks for at each length (layer_offload.h, Eq. 7). Attended ones that a step lacks come over the link.
  std::string layers_away = "none";
  /// Times that a step moves the cache's bytes to and from memory. 1: read once. A framework that copies the cache to
  /// append, gathers what it attends to, or repeats key/value heads for its query heads, moves more.
  double traffic = 1;
  double copies = 1;  // times that the cache is held while a step runs; 2: an old and a new one, where appending copies
  double entry_ns = 0;  // time of a step for each entry of a request beside bytes: choosing, dequantising
  /// Bytes that stand beside a cached token while the batch is made (activations, logits of all positions).
  double prefill_bytes_per_token = 0;

  void parameters(ParameterVisitor& p);
};

struct Workload {
  int64_t context = 0;  // prompt tokens
  int64_t output = 0;   // tokens that are decoded
  int64_t weight_bits = 16;
};

/// The part of a step that took longest.
enum class Bound { weights, cache, link, compute };
[[nodiscard]] std::string_view name_of(Bound bound);

/// Entries of one request's cache.
struct CachedEntries {
  CachedEntries(double count, double behind_prompt = 0, double away = 0)
      : all(count), generated(behind_prompt), share_away(away) {}
  double all = 0;
  double generated = 0;   // entries of `all` behind the prompt
  double share_away = 0;  // share of the layers whose entries lie in host memory
};

/// Bytes that one request's cache takes, at some entries.
struct RequestBytes {
  double resident = 0;  // on the accelerator
  double read = 0;      // from accelerator memory in a step
  double link = 0;      // from host memory in a step
  double host = 0;      // in host memory
  double attended = 0;  // entries that a step attends to
};
/// `entry_bytes`: of full KV, of one token.
[[nodiscard]] RequestBytes request_bytes(double entry_bytes, const CacheScheme& scheme, const CachedEntries& entries);
[[nodiscard]] RequestBytes request_bytes(const ModelShape& shape, const CacheScheme& scheme,
                                         const CachedEntries& entries);

/// Bytes that a pass moves, its arithmetic and its time.
struct StepEstimate {
  double weight_bytes = 0;  // read
  double cache_bytes = 0;   // read
  double link_bytes = 0;
  double flops = 0;
  double kernels = 0;        // launched
  double other_seconds = 0;  // beside bytes, operations and kernels
  double memory_seconds = 0;
  double link_seconds = 0;
  double compute_seconds = 0;
  double seconds = 0;
  Bound bound = Bound::weights;
};

/// The roofline: fills in the seconds and the bound of a pass whose bytes, operations and kernels are given. What comes
/// over the link comes as `scheme` says. Throws UserError when the machine has no host link and something comes over
/// it.
[[nodiscard]] StepEstimate timed(const Hardware& hardware, StepEstimate pass, const CacheScheme& scheme = {});

/// A decoding step of `batch` requests with `entries` cached tokens each.
[[nodiscard]] StepEstimate decode_step(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                                       int64_t batch, const CachedEntries& entries, int64_t weight_bits = 16);

/// The requests that fit beside the weights when each has reached context + output entries, in accelerator memory and,
/// for what is offloaded, in host memory where that is described; with a fraction, at least 0.
[[nodiscard]] double fitting_requests(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                                      const Workload& workload);
/// The whole ones of them.
[[nodiscard]] int64_t largest_batch(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                                    const Workload& workload);

/// Seconds that `batch` prompts take, all attention dense.
[[nodiscard]] double prefill_seconds(const Hardware& hardware, const ModelShape& shape, int64_t batch, int64_t tokens,
                                     int64_t weight_bits = 16);

struct RunEstimate {
  int64_t batch = 0;
  StepEstimate step;                        // at the mean number of entries, context + output / 2
  double tokens_per_second = 0;             // over the whole output, whose steps are not all alike
  double prefill_seconds = 0;               // of the whole batch
  double end_to_end_tokens_per_second = 0;  // output tokens over prefill and decoding
  RequestBytes request;                     // at context + output
};

/// `batch` requests, which are not asked whether they fit, or as many as do. Nothing when not even one fits.
[[nodiscard]] std::optional<RunEstimate> estimate_run(const Hardware& hardware, const ModelShape& shape,
                                                      const CacheScheme& scheme, const Workload& workload,
                                                      std::optional<int64_t> batch = std::nullopt);

/// Bits of scales beside each number: `per_group` bits for `group_size` numbers.
[[nodiscard]] inline double metadata_bits(double per_group, int64_t group_size) {
  return per_group / static_cast<double>(group_size);
}

}  // namespace kvarena::cost_model
