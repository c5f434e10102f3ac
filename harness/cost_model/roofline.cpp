#include "harness/cost_model/roofline.h"

#include <algorithm>
#include <cmath>

#include "harness/core/parameters.h"

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

}  // namespace

void CacheScheme::parameters(ParameterVisitor& p) {
  p("label", label).doc("as tables call it");
  p("bits", bits).above(0).max(32).doc("of a number in the packed part");
  p("metadata_bits", metadata_bits).min(0).doc("scales and offsets beside each packed number");
  p("keep", keep).above(0).max(1).doc("share of the entries that stays on the accelerator");
  p("tokens", tokens).min(1).doc("entries that stay, instead of a share");
  p("residual", residual).min(0).doc("newest entries that stay in 16 bits");
  p("attended", attended).min(1).doc("entries that a step attends to; all that stay unless given");
  p("index_bytes_per_entry", index_bytes_per_entry).min(0).doc("of what selects entries, read each step");
  p("offloaded", offloaded).doc("a 16-bit copy of every entry lies in host memory");
  p("fetched", fetched).min(0).doc("entries that come from host memory each step");
  p("fetched_anew", fetched_anew).min(0).max(1).doc("share of them that the step before did not have");
  p("link_share", link_share).above(0).max(1).doc("of the link's rate that scattered entries reach");
  p("overlapped", overlapped).doc("fetching runs beside the rest of the step");
  p("traffic", traffic).min(1).doc("times that a step moves the cache's bytes; 1: read once");
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

RequestBytes request_bytes(double entry_bytes, const CacheScheme& scheme, double entries) {
  const double packed = entry_bytes * (scheme.bits + scheme.metadata_bits) / 16;
  const double kept = kept_entries(scheme, entries);
  const double recent = std::min(kept, static_cast<double>(scheme.residual));
  const auto fetched = std::min(entries, static_cast<double>(scheme.fetched));
  const double resident = (kept - recent) * packed + recent * entry_bytes;
  const double index = entries * scheme.index_bytes_per_entry;
  const double attended = scheme.attended ? std::min(kept, static_cast<double>(*scheme.attended)) : kept;
  const double share = scheme.attended ? std::min(1.0, static_cast<double>(*scheme.attended) / kept) : 1.0;
  return {.resident = resident + index + fetched * entry_bytes,
          .read = (resident * share + fetched * entry_bytes) * scheme.traffic + index,
          .link = fetched * scheme.fetched_anew * entry_bytes,
          .host = scheme.offloaded ? entries * entry_bytes : 0,
          .attended = attended};
}

RequestBytes request_bytes(const ModelShape& shape, const CacheScheme& scheme, double entries) {
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
  const double local = std::max(pass.memory_seconds, pass.compute_seconds);
  pass.seconds = scheme.overlapped ? std::max(local, pass.link_seconds) : local + pass.link_seconds;
  pass.seconds += reached.step_overhead_ms / 1000;

  pass.bound = pass.weight_bytes >= pass.cache_bytes ? Bound::weights : Bound::cache;
  if (pass.compute_seconds > pass.memory_seconds) pass.bound = Bound::compute;
  if (pass.link_seconds > local) pass.bound = Bound::link;
  return pass;
}

StepEstimate decode_step(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme, int64_t batch,
                         double entries, int64_t weight_bits) {
  const auto requests = static_cast<double>(batch);
  const RequestBytes request = request_bytes(shape, scheme, entries);
  const double products = request.attended * static_cast<double>(shape.attention_products_per_entry());
  return timed(hardware,
               {.weight_bytes = weight_bytes(shape.read_parameters(requests), weight_bits),
                .cache_bytes = requests * request.read,
                .link_bytes = requests * request.link,
                .flops = requests * 2 * (shape.active_parameters() + products)},
               scheme);
}

int64_t largest_batch(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                      const Workload& workload) {
  const double entries = static_cast<double>(workload.context + workload.output);
  const RequestBytes request = request_bytes(shape, scheme, entries);
  const double beside = static_cast<double>(workload.context) * scheme.prefill_bytes_per_token;
  const double free = hardware.memory_bytes() * hardware.efficiency.usable_memory -
                      weight_bytes(static_cast<double>(shape.parameter_count()), workload.weight_bits);
  double most = std::floor(free / (request.resident + beside));
  if (request.host > 0 && hardware.host_memory_gib) {
    most = std::min(most, std::floor(hardware.host_memory_gib->value * 1024 * 1024 * 1024 / request.host));
  }
  return std::max<int64_t>(0, static_cast<int64_t>(most));
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
  return timed(hardware, {.weight_bytes = bytes, .flops = flops}).seconds;
}

std::optional<RunEstimate> estimate_run(const Hardware& hardware, const ModelShape& shape, const CacheScheme& scheme,
                                        const Workload& workload, std::optional<int64_t> batch) {
  RunEstimate run{.batch = batch ? *batch : largest_batch(hardware, shape, scheme, workload)};
  if (run.batch < 1) return std::nullopt;
  const auto context = static_cast<double>(workload.context), output = static_cast<double>(workload.output);
  run.step = decode_step(hardware, shape, scheme, run.batch, context + output / 2, workload.weight_bits);
  run.tokens_per_second = static_cast<double>(run.batch) / run.step.seconds;
  run.prefill_seconds = prefill_seconds(hardware, shape, run.batch, workload.context, workload.weight_bits);
  run.end_to_end_tokens_per_second =
      static_cast<double>(run.batch) * output / (run.prefill_seconds + output * run.step.seconds);
  run.request = request_bytes(shape, scheme, context + output);
  return run;
}

}  // namespace kvarena::cost_model
