// QuantSpec: what its two planes say (tests/golden/quantspec.py), when groups leave the buffer, and that speculation on
// them equals decoding on both.

#include <cmath>

#include "harness/cache/hierarchical_segment.h"
#include "harness/core/files.h"
#include "harness/engine/session/session.h"
#include "harness/method/verifier.h"
#include "tests/methods/compression/packed_layer.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::attend_one_query;
using testing::PackedLayer;
using testing::random_floats;
using testing::tiny_prompt;

const HierarchicalSegment& planes_of(const PackedLayer& layer) {
  return dynamic_cast<const HierarchicalSegment&>(*layer.packed());
}

TEST(QuantSpec, BothPlanesAreThoseOfTheAuthorsFormulas) {
  const json golden = json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/quantspec.json"));
  const auto n = golden["tokens"].get<int64_t>();
  const auto d = golden["head_dim"].get<int64_t>();
  auto rows = random_floats(n * d, "quantspec");
  for (size_t i = 0; i < rows.size(); ++i) rows[i] *= static_cast<float>(1 + i % 7);
  PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", golden["group_size"]}, {"buffer", 0}},
                    {.q_heads = 1, .kv_heads = 1, .head_dim = d, .dtype = DType::bf16});
  layer.append(rows, rows, n);
  layer.compress();
  ASSERT_NE(layer.packed(), nullptr);
  const HierarchicalSegment& planes = planes_of(layer);
  for (const char* plane : {"upper", "both"}) {
    std::vector<float> keys(rows.size());
    std::vector<float> values(rows.size());
    const Segment& read = std::string(plane) == "upper" ? static_cast<const Segment&>(planes.upper()) : planes;
    read.read(0, keys.data(), values.data());
    for (const auto& [side, got] : {std::pair{"keys", &keys}, std::pair{"values", &values}}) {
      const auto want = golden[side][plane].get<std::vector<double>>();
      for (size_t i = 0; i < want.size(); ++i) {  // decoded in another order of operations
        ASSERT_NEAR((*got)[i], want[i], 4e-6 * (1 + std::fabs(want[i]))) << side << " " << plane << " " << i;
      }
    }
  }
}

TEST(QuantSpec, FullGroupsLeaveTheBufferAtOnce) {
  const LayerShape shape{.q_heads = 2, .kv_heads = 1, .head_dim = 64, .dtype = DType::bf16};
  for (const auto& [prompt, steps, packed] : {std::tuple{40, 0, 0},
                                              {63, 0, 0},
                                              {64, 0, 32},
                                              {65, 0, 32},
                                              {100, 0, 64},
                                              {63, 1, 32},
                                              {64, 31, 32},
                                              {64, 32, 64},
                                              {1, 200, 160}}) {
    PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", 32}, {"buffer", 32}}, shape);
    layer.prefill(prompt);
    layer.decode(steps);
    const int64_t found = layer.packed() != nullptr ? layer.packed()->entries(0) : 0;
    EXPECT_EQ(found, packed) << prompt << " + " << steps;
    EXPECT_EQ(layer.values_in_16_bits(), prompt + steps - packed) << prompt << " + " << steps;
  }
}

TEST(QuantSpec, StoresEightBitsAndAQuarter) {
  const LayerShape shape{.q_heads = 2, .kv_heads = 1, .head_dim = 128, .dtype = DType::bf16};
  PackedLayer layer({{"name", "quantspec_kv"}, {"buffer", 0}}, shape);
  layer.prefill(1024);
  const double elements = 2 * 1024 * 128;
  EXPECT_EQ(8.0 * static_cast<double>(layer.packed()->bytes()) / elements, 8.25);
  EXPECT_EQ(8.0 * static_cast<double>(planes_of(layer).upper().bytes()) / elements, 4.25);
}

TEST(QuantSpec, AttentionIsThatOverWhatThePlanesDecodeTo) {
  const LayerShape shape{.q_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::bf16};
  PackedLayer layer({{"name", "quantspec_kv"}, {"group_size", 32}, {"buffer", 32}}, shape);
  layer.prefill(700);
  layer.decode(5);
  const auto q = random_floats(shape.q_heads * shape.head_dim, "q");
  const auto expect_near = [](const testing::Attended& got, const testing::Attended& want, double tolerance) {
    for (size_t i = 0; i < got.out.size(); ++i) ASSERT_NEAR(got.out[i], want.out[i], tolerance) << i;
    for (size_t i = 0; i < got.lse.size(); ++i) ASSERT_NEAR(got.lse[i], want.lse[i], tolerance) << i;
  };
  LayerCache& cache = layer.cache.layers[0];
  expect_near(attend_one_query(cache, q), attend_one_query(layer.decoded().layers[0], q), 1e-5);

  // The upper plane alone, as drafts read it: a layer of the same upper codes and nothing below.
  const UpperPlaneView view(cache);
  KvCache dense(1, {.q_heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::f32});
  const int64_t n = cache.entries(0);
  std::vector<float> keys(static_cast<size_t>(n * 128));
  std::vector<float> values(keys.size());
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<float> k(static_cast<size_t>(n * 64));
    std::vector<float> v(k.size());
    view.read(h, k.data(), v.data());
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(&k[i * 64], 64, &keys[i * 128 + h * 64]);
      std::copy_n(&v[i * 64], 64, &values[i * 128 + h * 64]);
    }
  }
  dense.layers[0].append(keys.data(), values.data(), n, 128, 0);
  cache.view = view.clone(cache.ledger());
  expect_near(attend_one_query(cache, q), attend_one_query(dense.layers[0], q), 1e-3);  // on codes, in integers
}

struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<VerifyRound> rounds;
  Activity activity;
};

Decoded decode(Transformer& model, const Prefill& prompt, const json& spec, double temperature) {
  const auto method = make_method(spec, "test");
  Decoded result;
  SessionOptions options{.stop = {.max_new_tokens = 150}, .sampling = {.temperature = temperature, .seed = 3}};
  options.on_logits = [&](int64_t, std::span<const float> row) { result.logits.emplace_back(row.begin(), row.end()); };
  const auto session = start_session(model, prompt, *method, options);
  Session* const sessions[] = {session.get()};
  run_together(model, sessions);
  result.tokens = session->tokens;
  result.rounds = session->rounds;
  result.activity = session->activity;
  return result;
}

TEST(QuantSpec, SpeculationEqualsDecodingOnBothPlanesWhileGroupsLeaveTheBuffer) {
  Transformer model = testing::tiny_model();
  for (const int64_t n : {3, 90, 130}) {
    const Prefill prompt = prefill(model, tiny_prompt(n), {});
    for (const double temperature : {0.0, 0.8}) {
      for (const int64_t length : {1, 5, 40}) {
        const json cache = {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 16}};
        const json spec = {{"name", "quantspec"}, {"draft_length", length}, {"group_size", 16}, {"buffer", 16}};
        const Decoded plain = decode(model, prompt, cache, temperature);
        const Decoded found = decode(model, prompt, spec, temperature);
        EXPECT_EQ(found.tokens, plain.tokens) << n << " " << temperature << " " << length;
        EXPECT_EQ(found.logits, plain.logits) << n << " " << temperature << " " << length;
        EXPECT_EQ(found.activity.entries_packed, plain.activity.entries_packed);
        EXPECT_GT(found.activity.tokens_accepted, 0);
        EXPECT_LT(found.rounds.size(), found.tokens.size());
      }
    }
  }
}

TEST(QuantSpec, DraftsReadTheUpperPlane) {
  // With one token drafted, the drafted token is that of decoding on 4 bits from the same state; where 4 bits and 8
  // disagree, the draft is rejected.
  Transformer model = testing::tiny_model();
  const Prefill prompt = prefill(model, tiny_prompt(400), {});
  const Decoded eight = decode(model, prompt, {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 0}}, 0);
  const Decoded four =
      decode(model, prompt, {{"name", "quantspec_kv"}, {"group_size", 16}, {"buffer", 0}, {"read", "upper"}}, 0);
  EXPECT_EQ(eight.tokens.front(), four.tokens.front());  // from the prompt, before anything is packed
  EXPECT_NE(eight.logits[1], four.logits[1]);
  const Decoded found =
      decode(model, prompt, {{"name", "quantspec"}, {"draft_length", 1}, {"group_size", 16}, {"buffer", 0}}, 0);
  EXPECT_EQ(found.tokens, eight.tokens);
  EXPECT_EQ(found.rounds.front().accepted == 1, four.tokens[1] == eight.tokens[1]);
}

}  // namespace
}  // namespace kvarena
