#include "harness/cost_model/roofline.h"

#include <algorithm>
#include <cmath>

#include "harness/core/parameters.h"
#include "harness/cost_model/layer_offload.h"

namespace kvarena::cost_model {
namespace {

double weight_bytes(double parameters, int64_t weight_bits) {
  return parameters * static_cast<double>(weight_bits) / 8;
}

/// Number of `entries` entries that the scheme keeps.
double kept_entries(const CacheScheme& scheme, double entries) {
  if (scheme.tokens) return std::min(entries, static_cast<double>(*scheme.tokens));
  return scheme.keep * entries;
}

constexpr int64_t kRunParts = 64;  // of a run, each with the step at its middle

/// Inputs of Eq. 7 for `batch` requests: keys and values stand repeated for their query heads, as in the paper.
OffloadLoad offload_load(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme, int64_t batch,
                         int64_t weight_bits) {
  return {.memory_bytes = static_cast<int64_t>(hardware.memory_bytes()),
          .weight_bytes = static_cast<int64_t>(weight_bytes(static_cast<double>(shape.parameter_count()), weight_bits)),
          .requests = batch,
          .layers = shape.layers,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .repeat = shape.group(),
          .budget = scheme.attended.value_or(0)};
}

/// Share of the layers whose entries are away when each request has `entries`.
double share_away(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme, int64_t batch,
                  double entries, int64_t weight_bits) {
  if (scheme.layers_away != "as needed") return scheme.layers_away == "all" ? 1 : 0;
  LayerOffload layers(length_thresholds(offload_load(hardware, shape, scheme, batch, weight_bits)));
  layers.advance(static_cast<int64_t>(entries), [](int64_t) {});
  return static_cast<double>(layers.offloaded()) / static_cast<double>(shape.layers);
}

}  // namespace

void CacheScheme::parameters(ParameterVisitor& p) {
  p("label", label).doc("as tables call it");
  p("bits", bits).above(0).max(32).doc("of a number in the packed part");
  p("metadata_bits", metadata_bits).min(0).doc("scales and offsets beside each packed number");
  p("keep", keep).above(0).max(1).doc("share of the entries that stays on the accelerator");
  p("tokens", tokens).min(1).doc("entries that stay, instead of a share");
  p("residual", residual).min(0).doc("newest entries that stay in 16 bits");
  p("attended", attended).min(1).doc("entries that a step attends to; all that stay unless given");
  p("selects_prompt", selects_prompt).doc("\"attended\" counts the prompt's; generated entries come on top");
  p("index_bytes_per_entry", index_bytes_per_entry).min(0).doc("of what selects entries, read each step");
  p("offloaded", offloaded).doc("a 16-bit copy of every entry lies in host memory");
  p("fetched", fetched).min(0).doc("entries that come from host memory each step");
  p("fetched_anew", fetched_anew).min(0).max(1).doc("share of them that the step before did not have");
  p("link_share", link_share).above(0).max(1).doc("of the link's rate that scattered entries reach");
  p("overlapped", overlapped).doc("fetching runs beside the rest of the step");
  p("layers_away", layers_away)
      .one_of({"none", "all", "as needed"})
      .doc("layers whose entries lie in host memory, but for the attended ones");
  p("traffic", traffic).min(1).doc("times that a step moves the cache's bytes; 1: read once");
  p("copies", copies).min(1).doc("times that the cache is held while a step runs");
  p("entry_ns", entry_ns).min(0).doc("time of a step for each entry of a request, beside bytes");
  p("prefill_bytes_per_token", prefill_bytes_per_token).min(0).doc("beside a cached token while the batch is made");
}

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::weights: return "weights";
    case Bound::cache: return "cache";
    case Bound::link: return "link";
    case Bound::compute: return "compute";
  }
  return "";
}

RequestBytes request_bytes(double entry_bytes, const CacheScheme& scheme, const CachedEntries& entries) {
  const double packed = entry_bytes * (scheme.bits + scheme.metadata_bits) / 16;
  const double kept = kept_entries(scheme, entries.all);
  const double recent = std::min(kept, static_cast<double>(scheme.residual));
  const auto fetched = std::min(entries.all, static_cast<double>(scheme.fetched));
  const double cache = (kept - recent) * packed + recent * entry_bytes;
  const double index = entries.all * scheme.index_bytes_per_entry;
  double attended = kept;
  if (scheme.attended) {
    const double beside = scheme.selects_prompt ? entries.generated : 0;
    attended = std::min(kept, static_cast<double>(*scheme.attended) + beside);
  }
  const double share = kept > 0 ? attended / kept : 1;
  const double away = entries.share_away;
  return {.resident = cache * scheme.copies * (1 - away + away * share) + index + fetched * entry_bytes,
          .read = (cache * share + fetched * entry_bytes) * scheme.traffic + index,
          .link = (fetched + away * attended) * scheme.fetched_anew * entry_bytes,
          .host = (scheme.offloaded ? 1 : away) * entries.all * entry_bytes,
          .attended = attended};
}

RequestBytes request_bytes(const ModelShape& shape, const CacheScheme& scheme, const CachedEntries& entries) {
  return request_bytes(2 * static_cast<double>(shape.numbers_per_entry()), scheme, entries);
}

StepEstimate timed(const Hardware& hardware, StepEstimate pass, const CacheScheme& scheme) {
  const Efficiency& reached = hardware.efficiency;
  pass.memory_seconds = (pass.weight_bytes + pass.cache_bytes) / (hardware.memory_bytes_per_second() * reached.memory);
  pass.compute_seconds = pass.flops / (hardware.flop_per_second() * reached.compute);
  if (pass.link_bytes > 0) {
    const double link = hardware.link("host").bytes_per_second() * static_cast<double>(hardware.accelerators);
    pass.link_seconds = pass.link_bytes / (link * reached.link * scheme.link_share);
  }
  const double beside = pass.kernels * reached.kernel_us * 1e-6 + pass.other_seconds;
  const double local = std::max(pass.memory_seconds, pass.compute_seconds) + beside;
  pass.seconds = scheme.overlapped ? std::max(local, pass.link_seconds) : local + pass.link_seconds;

  pass.bound = pass.weight_bytes >= pass.cache_bytes ? Bound::weights : Bound::cache;
  if (pass.compute_seconds > pass.memory_seconds) pass.bound = Bound::compute;
  if (pass.link_seconds > local) pass.bound = Bound::link;
  return pass;
}

StepEstimate decode_step(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme, int64_t batch,
                         const CachedEntries& entries, int64_t weight_bits) {
  const auto requests = static_cast<double>(batch);
  const RequestBytes request = request_bytes(shape, scheme, entries);
  const double products = request.attended * static_cast<double>(shape.attention_products_per_entry());
  return timed(hardware,
               {.weight_bytes = weight_bytes(shape.read_parameters(requests), weight_bits),
                .cache_bytes = requests * request.read,
                .link_bytes = requests * request.link,
                .flops = requests * 2 * (shape.active_parameters() + products),
                .kernels = kernels_of(shape.layers, shape.qk_norm),
                .other_seconds = requests * entries.all * scheme.entry_ns * 1e-9},
               scheme);
}

double fitting_requests(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                        const Workload& workload) {
  const CachedEntries last(static_cast<double>(workload.context + workload.output),
                           static_cast<double>(workload.output), scheme.layers_away == "none" ? 0 : 1);
  const RequestBytes request = request_bytes(shape, scheme, last);
  const double beside = static_cast<double>(workload.context) * scheme.prefill_bytes_per_token;
  const double weights = weight_bytes(static_cast<double>(shape.parameter_count()), workload.weight_bits);
  double most = (hardware.memory_bytes() * hardware.efficiency.usable_memory - weights) / (request.resident + beside);
  if (scheme.layers_away == "as needed") {
    const OffloadLoad one = offload_load(hardware, shape, scheme, /*batch=*/1, workload.weight_bits);
    const double fixed = kWeightsAndActivations * weights;
    most = (hardware.memory_bytes() - fixed) /
           (needed_bytes(one, workload.context + workload.output, shape.layers) - fixed);
  }
  if (request.host > 0 && hardware.host_memory_gib) {
    most = std::min(most, hardware.host_memory_gib->value * 1024 * 1024 * 1024 / request.host);
  }
  return std::max(0.0, most);
}

int64_t largest_batch(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                      const Workload& workload) {
  return static_cast<int64_t>(std::floor(fitting_requests(hardware, shape, scheme, workload)));
}

double prefill_seconds(const Hardware& hardware, const ModelShape& shape, int64_t batch, int64_t tokens,
                       int64_t weight_bits) {
  const auto requests = static_cast<double>(batch), n = static_cast<double>(tokens);
  const double pairs = n * (n + 1) / 2;
  // The output matrix is needed for the last token alone.
  const auto output_matrix = static_cast<double>(shape.vocab_size * shape.hidden_size);
  const double flops = requests * 2 *
                       (n * (shape.active_parameters() - output_matrix) + output_matrix +
                        pairs * static_cast<double>(shape.attention_products_per_entry()));
  const double bytes = weight_bytes(shape.read_parameters(requests * n), weight_bits);
  return timed(hardware, {.weight_bytes = bytes, .flops = flops, .kernels = kernels_of(shape.layers, shape.qk_norm)})
      .seconds;
}

std::optional<RunEstimate> estimate_run(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                                        const Workload& workload, std::optional<int64_t> batch) {
  RunEstimate run{.batch = batch ? *batch : largest_batch(hardware, shape, scheme, workload)};
  if (run.batch < 1) return std::nullopt;
  const auto context = static_cast<double>(workload.context), output = static_cast<double>(workload.output);
  const auto step_after = [&](double generated) {
    const double away = share_away(hardware, shape, scheme, run.batch, context + generated, workload.weight_bits);
    return decode_step(hardware, shape, scheme, run.batch, {context + generated, generated, away},
                       workload.weight_bits);
  };
  run.step = step_after(output / 2);
  double seconds = 0;
  for (int64_t part = 0; part < kRunParts; ++part)
    seconds += step_after(output * (static_cast<double>(part) + 0.5) / kRunParts).seconds / kRunParts;
  run.tokens_per_second = static_cast<double>(run.batch) / seconds;
  run.prefill_seconds = prefill_seconds(hardware, shape, run.batch, workload.context, workload.weight_bits);
  run.end_to_end_tokens_per_second = static_cast<double>(run.batch) * output / (run.prefill_seconds + output * seconds);
  run.request = request_bytes(shape, scheme,
                              {context + output, output,
                               share_away(hardware, shape, scheme, run.batch, context + output, workload.weight_bits)});
  return run;
}

}  // namespace kvarena::cost_model
