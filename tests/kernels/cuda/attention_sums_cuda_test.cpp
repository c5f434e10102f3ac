#include "kernels/attention_sums/attention_sums_cuda.h"

#include <algorithm>

#include "kernels/attention_sums/attention_sums.h"
#include "tests/kernels/cuda/device_support.h"

namespace kvarena::kernels {
namespace {

using test::CudaTest;
using test::expect_close;
using test::expect_same_bits;
using test::OnDevice;

class AttentionSumsCuda : public CudaTest {};

constexpr int64_t kHeads = 6, kKvHeads = 2, kGroup = kHeads / kKvHeads;

/// Some tokens of a prompt and what they give: [tokens, q_heads, entries].
struct Given {
  std::vector<float> probabilities;
  int64_t tokens = 0, entries = 0, position = 0;
};

Given given(int64_t entries, int64_t tokens) {
  Given made{test::normal(tokens * kHeads * entries, 3), tokens, entries, entries - tokens};
  for (int64_t row = 0; row < tokens * kHeads; ++row) {
    const int64_t seen = made.position + row / kHeads + 1;
    float* const at = &made.probabilities[static_cast<size_t>(row * entries)];
    float total = 0;
    for (int64_t p = 0; p < entries; ++p) total += at[p] = p < seen ? std::exp(2 * at[p]) : 0.0F;
    for (int64_t p = 0; p < entries; ++p) at[p] /= total;
  }
  return made;
}

/// The tokens first .. first+count-1 alone, as a pass of theirs would give them.
Given piece(const Given& whole, int64_t first, int64_t count) {
  Given part{{}, count, whole.position + first + count, whole.position + first};
  for (int64_t row = first * kHeads; row < (first + count) * kHeads; ++row) {
    const auto from = whole.probabilities.begin() + row * whole.entries;
    part.probabilities.insert(part.probabilities.end(), from, from + part.entries);
  }
  return part;
}

/// Results of every sum, [kv_heads, width, stride] each.
struct Sums {
  explicit Sums(int64_t entries)
      : stride(entries + 3),
        moments(static_cast<size_t>(kKvHeads * 2 * stride), 0.25F),
        ignored(static_cast<size_t>(kKvHeads * 3 * stride)),
        perturbed(static_cast<size_t>(kKvHeads * stride), 0.5F) {}
  int64_t stride;
  std::vector<float> moments, ignored, perturbed;
};

constexpr IgnoredQueries ignored_of(int64_t entries) { return {.history = 60, .first = entries - 60}; }

PerturbedSum perturbed_by(float tau, bool noise) {
  PerturbedSum what{.tau = tau, .noise = nullptr};
  if (noise)
    what.noise = [](int64_t head, int64_t position) {
      return static_cast<uint64_t>(position) << 20 | static_cast<uint64_t>(head);
    };
  return what;
}

/// Adds what the tokens give, on the host by the reference.
void add_on_host(const Given& from, const IgnoredQueries& queries, const PerturbedSum& what, Sums& to) {
  const ScopedCpuPath reference(CpuPath::reference);
  const int64_t chunks = (from.entries + kChunk - 1) / kChunk;
  const std::vector<float> ones(static_cast<size_t>(kGroup * chunks), 1.0F);
  for (int64_t t = 0; t < from.tokens; ++t) {
    const int64_t low = 0, position = from.position + t, high = position + 1;
    for (int64_t head = 0; head < kKvHeads; ++head) {
      const ProbabilityRows rows{
          .kv_head = head,
          .group = kGroup,
          .first_token = t,
          .tokens = 1,
          .low = &low,
          .high = &high,
          .weights = &from.probabilities[static_cast<size_t>((t * kHeads + head * kGroup) * from.entries)],
          .weights_stride = from.entries,
          .factors = ones.data(),
          .factors_stride = chunks};
      float* const moments = &to.moments[static_cast<size_t>(head * 2 * to.stride)];
      add_sum(MomentSums{}, rows, position, moments, to.stride);
      add_sum(queries, rows, position, &to.ignored[static_cast<size_t>(head * 3 * to.stride)], to.stride);
      add_sum(what, rows, position, &to.perturbed[static_cast<size_t>(head * to.stride)], to.stride);
    }
  }
}

void add_on_device(const Given& from, const IgnoredQueries& queries, const PerturbedSum& what, Sums& to) {
  OnDevice device;
  CudaScratch scratch;
  DeviceGumbelTable table;
  const DeviceProbabilities rows{.data = device.copy(from.probabilities),
                                 .tokens = from.tokens,
                                 .q_heads = kHeads,
                                 .kv_heads = kKvHeads,
                                 .entries = from.entries,
                                 .position = from.position};
  const auto add = [&](std::vector<float>& sums, const auto& kernel) {
    float* const there = device.copy(sums);
    kernel(there);
    sums = test::from_device(there, static_cast<int64_t>(sums.size()));
  };
  add(to.moments, [&](float* sums) { add_moments_cuda(rows, sums, to.stride, nullptr); });
  add(to.ignored, [&](float* sums) { mark_ignored_cuda(rows, queries, sums, to.stride, nullptr); });
  add(to.perturbed, [&](float* sums) { add_perturbed_cuda(rows, what, sums, to.stride, table, scratch, nullptr); });
}

TEST_F(AttentionSumsCuda, AgreeWithTheReference) {
  for (const int64_t entries : {1, 40, 700}) {
    const Given from = given(entries, std::min<int64_t>(entries, 23));
    for (const float tau : {1.0F, 0.6F, 2.5F}) {
      for (const bool noise : {false, true}) {
        Sums host(entries), device(entries);
        add_on_host(from, ignored_of(entries), perturbed_by(tau, noise), host);
        add_on_device(from, ignored_of(entries), perturbed_by(tau, noise), device);
        const std::string what = std::to_string(entries) + " entries, tau " + std::to_string(tau);
        expect_close(device.moments, host.moments, 1e-7, 1e-6, what);
        expect_same_bits(device.ignored, host.ignored, what);
        expect_close(device.perturbed, host.perturbed, 1e-6, 2e-5, what);
      }
    }
  }
}

TEST_F(AttentionSumsCuda, APromptInPiecesHasTheBitsOfOneCall) {
  const Given all = given(610, 100);
  const PerturbedSum what = perturbed_by(2, true);
  Sums whole(610), pieces(610);
  add_on_device(all, ignored_of(610), what, whole);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 36}, {37, 63}})
    add_on_device(piece(all, first, count), ignored_of(610), what, pieces);
  expect_same_bits(pieces.moments, whole.moments, "moments");
  expect_same_bits(pieces.ignored, whole.ignored, "ignored");
  expect_same_bits(pieces.perturbed, whole.perturbed, "perturbed");
}

}  // namespace
}  // namespace kvarena::kernels
