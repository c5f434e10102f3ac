// The retrieval head and its selections against a restatement in PyTorch (tests/golden/specontext.py), over a tiny
// EAGLE-3 drafter in the layout of the published ones.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/cache/indexed_segment.h"
#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/engine/fit.h"
#include "harness/engine/fitted_file.h"
#include "harness/engine/model_facts.h"
#include "harness/engine/serving/batch_run.h"
#include "harness/engine/session/compressed_cache.h"
#include "harness/engine/session/observe.h"
#include "harness/engine/session/session.h"
#include "harness/method/registry.h"
#include "harness/method/retrieval_head.h"
#include "harness/method/yielding_index.h"
#include "harness/storage/hierarchy.h"
#include "tests/methods/retrieval/retrieval_support.h"
#include "tests/support/decoding.h"
#include "tests/support/error_of.h"
#include "tests/support/imported_weights.h"
#include "tests/support/tiny_model.h"

namespace kvarena {
namespace {

using nlohmann::json;
using testing::Decoded;
using testing::error_of;
using testing::list_of;

const std::string kDrafter = KVARENA_SOURCE_DIR "/tests/golden/specontext_eagle3";

class SpeContextTest : public ::testing::Test {
 protected:
  SpeContextTest()
      : golden_(json::parse(read_file(KVARENA_SOURCE_DIR "/tests/golden/specontext.json"))),
        tokens_(golden_["tokens"].get<std::vector<int32_t>>()),
        model_(testing::tiny_model(1, {.weights = DType::f32, .cache = DType::f32})),
        facts_(model_facts(model_)) {}

  [[nodiscard]] std::vector<float> embeddings() const {
    std::vector<float> rows(tokens_.size() * 64);
    facts_->embed(tokens_, rows.data());
    return rows;
  }
  [[nodiscard]] std::vector<float> features() const {
    const RandomStream draws(2, "features");
    std::vector<float> rows(tokens_.size() * 192);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(2 * draws.uniform(i) - 1);
    return rows;
  }

  const json golden_;
  const std::vector<int32_t> tokens_;
  Transformer model_;
  std::shared_ptr<ModelFacts> facts_;
  const std::string head_ = testing::imported(model_, "specontext", kDrafter);
};

/// One request of `layers` layers, fed as the engine does, without a model.
struct Request {
  Request(const json& spec, const LayerShape& own_shape, const ModelFacts& own_facts)
      : method(make_method(spec, "test")), shape(own_shape), facts(&own_facts), cache(2, own_shape) {}

  void append(int64_t count) {
    const std::vector<float> rows =
        testing::random_floats(count * shape.kv_heads * shape.head_dim, "rows", static_cast<uint64_t>(cache.length));
    for (LayerCache& layer : cache.layers) {
      layer.append(rows.data(), rows.data(), count, shape.kv_heads * shape.head_dim, cache.length);
    }
    cache.length += count;
  }
  void start(std::span<const int32_t> prompt) {
    append(static_cast<int64_t>(prompt.size()));
    prompt_tokens = cache.length;
    std::vector<LayerContext> layers;
    for (int64_t layer = 0; layer < 2; ++layer) layers.push_back(context(layer, prompt));
    method->compress_all(layers, {});
  }
  /// The lists chosen in each layer for a pass over `tokens`; empty where everything is attended.
  std::vector<std::vector<std::vector<int32_t>>> pass(std::span<const int32_t> tokens) {
    RequestContext request{.cache = cache, .activity = activity, .prompt_tokens = prompt_tokens, .model = facts};
    method->on_tokens(request, tokens);
    method->begin_step(request, static_cast<int64_t>(tokens.size()));
    append(static_cast<int64_t>(tokens.size()));
    std::vector<std::vector<std::vector<int32_t>>> chosen;
    for (int64_t layer = 0; layer < 2; ++layer) {
      LayerContext at = context(layer, {});
      method->select(at, {.q_len = static_cast<int64_t>(tokens.size())});
      const auto* view = dynamic_cast<const IndexedSegment*>(at.cache.view.get());
      auto& lists = chosen.emplace_back();
      for (int64_t head = 0; view != nullptr && head < shape.q_heads; ++head) {
        lists.push_back(at.cache.index ? view->positions(head / shape.group()) : list_of(view->selected(head)));
      }
      at.cache.view.reset();
      method->after_append(at);
    }
    return chosen;
  }
  LayerContext context(int64_t layer, std::span<const int32_t> prompt) {
    return {.layer = layer,
            .layers = 2,
            .cache = cache.layers[static_cast<size_t>(layer)],
            .activity = activity,
            .prompt_tokens = prompt_tokens,
            .model = facts,
            .prompt = prompt,
            .request = &cache};
  }

  std::unique_ptr<Method> method;
  LayerShape shape;
  const ModelFacts* facts;
  KvCache cache;
  Activity activity;
  int64_t prompt_tokens = 0;
};

constexpr LayerShape kGrouped{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::f32};

TEST_F(SpeContextTest, ProjectsAsTheDrafterDoes) {
  const FittedWeights weights = read_fitted(kDrafter, retrieval_head_tensors());
  EXPECT_EQ(weights.tensors.size(), 5U) << "values, feed-forward and output are not read";
  const std::vector<float> x = embeddings();
  const std::vector<float> g = features();
  const auto n = static_cast<int64_t>(tokens_.size());
  for (const json& one : golden_["cases"]) {
    const bool previous = one["feature"] == "previous";
    const RetrievalHead head(weights, *facts_, {.features = previous, .yarn = one["yarn"].get<double>()});
    std::vector<float> q(static_cast<size_t>(n * 4 * 32));
    std::vector<float> k(static_cast<size_t>(n * 2 * 32));
    head.project(x.data(), previous ? g.data() : nullptr, n, 0, q.data(), k.data());
    const auto expect_row = [&](const std::vector<float>& ours, int64_t row, const json& theirs) {
      const auto width = static_cast<int64_t>(theirs.size());
      for (int64_t i = 0; i < width; ++i) {
        EXPECT_NEAR(ours[row * width + i], theirs[i].get<double>(), 2e-4)
            << one["feature"] << " yarn " << one["yarn"] << " row " << row << " number " << i;
      }
    };
    expect_row(q, n - 1, one["q"]);
    for (const auto& [row, theirs] : one["k"].items()) expect_row(k, std::stoll(row), theirs);
  }
}

TEST_F(SpeContextTest, ChoosesAsTheReferenceInEveryLayer) {
  struct Mapping {
    const char* level;
    const char* golden;
    LayerShape shape;
    bool latent;
  };
  LayerShape each = kGrouped;
  each.kv_heads = 4;
  LayerShape one_head = kGrouped;
  one_head.kv_heads = 1;
  const std::vector<Mapping> mappings = {{"head", "head", kGrouped, false},
                                         {"batch", "batch", kGrouped, false},
                                         {"head", "query", each, false},
                                         {"head", "batch", one_head, false},
                                         {"head", "query", one_head, true}};
  for (const json& one : golden_["cases"]) {
    if (one["feature"] != "zero") continue;
    for (const auto& [budget, selections] : one["selected"].items()) {
      for (const Mapping& map : mappings) {
        facts_->latent = map.latent;
        Request request({{"name", "specontext"},
                         {"tokens", std::stoll(budget)},
                         {"head", head_},
                         {"yarn", one["yarn"]},
                         {"level", map.level}},
                        map.shape, *facts_);
        request.start(std::span(tokens_).first(tokens_.size() - 1));
        const auto chosen = request.pass(std::span(tokens_).last(1));
        const json& golden = selections[map.golden];
        for (const auto& layer : chosen) {
          ASSERT_EQ(layer.size(), 4U);
          for (size_t head = 0; head < 4; ++head) {
            const json& list = golden[0].is_array() ? golden[head * golden.size() / 4] : golden;
            EXPECT_EQ(json(layer[head]), list)
                << "budget " << budget << " yarn " << one["yarn"] << " level " << map.level << " kv heads "
                << map.shape.kv_heads << " query head " << head;
          }
        }
        EXPECT_GT(request.activity.entries_skipped, 0);
      }
    }
  }
}

TEST_F(SpeContextTest, ReadsTokensInPiecesAsAtOnce) {
  const json spec = {{"name", "specontext"}, {"tokens", 9}, {"head", head_}};
  Request whole(spec, kGrouped, *facts_);
  whole.start(std::span(tokens_).first(95));
  const auto expected = whole.pass(std::span(tokens_).subspan(95));
  Request pieces(spec, kGrouped, *facts_);
  pieces.start(std::span(tokens_).first(40));
  (void)pieces.pass(std::span(tokens_).subspan(40, 1));
  const auto several = pieces.pass(std::span(tokens_).subspan(41, 20));
  EXPECT_TRUE(several[0].empty()) << "a pass of several tokens attends to everything";
  for (size_t i = 61; i < 95; ++i) (void)pieces.pass(std::span(tokens_).subspan(i, 1));
  KvCache copy = pieces.cache.clone();
  EXPECT_EQ(copy.bytes(), pieces.cache.bytes());
  EXPECT_EQ(copy.ledger->current(), pieces.cache.ledger->current());
  std::swap(copy, pieces.cache);
  EXPECT_EQ(pieces.pass(std::span(tokens_).subspan(95)), expected);
}

TEST_F(SpeContextTest, CountsItsKeysAndAttendsToAllWithinTheBudget) {
  Request request({{"name", "specontext"}, {"tokens", 96}, {"head", head_}}, kGrouped, *facts_);
  const int64_t before = request.cache.bytes();
  request.start(std::span(tokens_).first(95));
  const int64_t held = request.cache.index->bytes();
  EXPECT_EQ(held, 96 * 2 * 32 * 2) << "whole cells of two kv heads' keys in bf16";
  EXPECT_EQ(request.cache.bytes(), request.cache.ledger->current());
  EXPECT_GT(request.cache.bytes(), before + held);
  EXPECT_TRUE(request.pass(std::span(tokens_).last(1))[0].empty());
  EXPECT_FALSE(request.pass(std::span(tokens_).last(1))[0].empty());
}

/// Hooks that write down what the first layer attends to, and see that all layers attend to the same.
class NotedChoice final : public MethodHooks {
 public:
  using MethodHooks::MethodHooks;
  void before_attention(int64_t layer, LayerCache& cache, const LayerQueries& queries) override {
    MethodHooks::before_attention(layer, cache, queries);
    json lists = json::array();
    for (int64_t head = 0; cache.view && head < cache.shape().kv_heads; ++head) {
      lists.push_back(cache.view->positions(head));
    }
    if (layer == 0) chosen = lists;
    EXPECT_EQ(lists, chosen) << "layer " << layer;
  }
  json chosen;
};

/// A model of eight layers under a drafter with features, fed pass by pass.
class WithFeatures {
 public:
  explicit WithFeatures(const json& settings = json::object(), const std::string& drafter = kDrafter)
      : facts_(model_facts(model_)) {
    json spec = {{"name", "specontext"},
                 {"tokens", 17},
                 {"head", testing::imported(model_, "specontext", drafter)},
                 {"feature", "previous"}};
    spec.update(settings);
    method_ = make_method(spec, "test");
  }
  [[nodiscard]] static ModelConfig config() {
    ModelConfig config = testing::tiny_config();
    config.layers = 8;
    return config;
  }
  void start(std::span<const int32_t> tokens, const Needs& needs) {
    const Prefill prompt = prefill(model_, tokens, needs, /*chunk=*/32, facts_);
    cache_ = state_after_prompt(model_, prompt, *method_, activity_).cache;
    hooks_.emplace(*method_, activity_, std::ssize(tokens), facts_.get());
  }
  void start(std::span<const int32_t> tokens) { start(tokens, method_->needs()); }
  json pass(std::span<const int32_t> tokens) {
    const SequencePass one{.tokens = tokens, .cache = &*cache_, .hooks = &*hooks_};
    (void)model_.forward({&one, 1});
    return hooks_->chosen;
  }
  [[nodiscard]] const KvCache& cache() const { return *cache_; }
  void take(KvCache cache) { cache_ = std::move(cache); }

 private:
  Transformer model_ = testing::tiny_model(1, {.weights = DType::f32, .cache = DType::f32}, config());
  std::shared_ptr<ModelFacts> facts_;
  std::unique_ptr<Method> method_;
  Activity activity_;
  std::optional<KvCache> cache_;
  std::optional<NotedChoice> hooks_;
};

TEST_F(SpeContextTest, DecodesUnderWhatThePreviousFeaturesChoose) {
  const json& golden = golden_["decoding"];
  const auto prompt = golden["prompt"].get<size_t>();
  WithFeatures previous, zero(json{{"feature", "zero"}});
  for (WithFeatures* request : {&previous, &zero}) request->start(std::span(tokens_).first(prompt));
  size_t differ = 0;
  for (size_t i = prompt; i < tokens_.size(); ++i) {
    const auto next = std::span(tokens_).subspan(i, 1);
    const json& theirs = golden["chosen"][i - prompt];
    EXPECT_EQ(previous.pass(next), theirs) << "token " << i;
    differ += zero.pass(next) != theirs ? 1 : 0;
  }
  EXPECT_EQ(differ, tokens_.size() - prompt) << "of the embeddings alone something else is chosen";
}

TEST_F(SpeContextTest, TokensOfOnePassAreReadWithTheirFeaturesBehindIt) {
  WithFeatures whole, pieces, copied;
  whole.start(std::span(tokens_).first(70));
  pieces.start(std::span(tokens_).first(60));
  EXPECT_TRUE(pieces.pass(std::span(tokens_).subspan(60, 6)).empty()) << "several tokens attend to everything";
  EXPECT_TRUE(pieces.pass(std::span(tokens_).subspan(66, 4)).empty());
  copied.start(std::span(tokens_).first(60));
  KvCache copy = pieces.cache().clone();
  EXPECT_EQ(copy.ledger->current(), copy.bytes());
  copied.take(std::move(copy));
  for (size_t i = 70; i < 80; ++i) {
    const auto next = std::span(tokens_).subspan(i, 1);
    const json chosen = whole.pass(next);
    EXPECT_EQ(chosen.size(), 2U);
    EXPECT_EQ(pieces.pass(next), chosen) << i;
    EXPECT_EQ(copied.pass(next), chosen) << i;
  }
}

TEST_F(SpeContextTest, SaysWhyFeaturesCannotBeRead) {
  const auto message = [](const auto& start) -> std::string {
    try {
      start();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const auto prompt = std::span(tokens_).first(60);
  EXPECT_NE(message([&] { WithFeatures().start(prompt, {}); }).find("a prompt whose hidden states nobody kept"),
            std::string::npos);
  const json previous = {{"name", "specontext"}, {"tokens", 9}, {"head", head_}, {"feature", "previous"}};
  const std::string shallow = message([&] { Request(previous, kGrouped, *facts_).start(prompt); });
  EXPECT_NE(shallow.find("tiny: found 2 layers, expected at least 7"), std::string::npos) << shallow;

  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_taps_{}", getpid());
  const auto named = [&](const char* layers) {
    const auto own = folder / layers;
    std::filesystem::create_directories(own);
    std::filesystem::copy(kDrafter + "/model.safetensors", own);
    json config = json::parse(read_file(kDrafter + "/config.json"));
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = json::parse(layers);
    std::ofstream(own / "config.json") << config;
    return message([&] { WithFeatures(json::object(), own.string()).start(prompt); });
  };
  EXPECT_EQ(named("[2,4,5]"), "") << "by their inputs";
  EXPECT_EQ(named("[1,3,4]"), "") << "by the outputs before";
  const std::string others = named("[1,4,6]");
  EXPECT_NE(others.find("eagle_config.eagle_aux_hidden_state_layer_ids: found [1,4,6], expected [2,4,5] or [1,3,4]"),
            std::string::npos)
      << others;

  const auto fitted = folder / "fitted.safetensors";
  write_fitted(fitted,
               {.place = "test",
                .tensors = {{"q", {.shape = {4, 32, 64}, .values = std::vector<float>(4 * 32 * 64, 0.1F)}},
                            {"k", {.shape = {2, 32, 64}, .values = std::vector<float>(2 * 32 * 64, 0.1F)}},
                            {"window", {.shape = {1}, .values = {1024}}}},
                .metadata = {{kFittedFingerprint, testing::tiny_model(1, {}, WithFeatures::config()).fingerprint()}}},
               /*bf16=*/false);
  EXPECT_EQ(message([&] { WithFeatures(json{{"head", fitted.string()}, {"feature", "zero"}}).start(prompt); }), "");
  const std::string plain = message([&] { WithFeatures(json{{"head", fitted.string()}}).start(prompt); });
  EXPECT_NE(plain.find("a head that reads embeddings alone"), std::string::npos) << plain;
  std::filesystem::remove_all(folder);
}

TEST_F(SpeContextTest, LayersLeaveOneByOneAndAttendToTheSame) {
  const json spec = {{"name", "specontext"}, {"tokens", 9}, {"head", head_}};
  Request whole(spec, kGrouped, *facts_);
  json adaptive = spec;
  adaptive["offload"] = "adaptive";
  Request leaving(adaptive, kGrouped, *facts_);
  for (Request* request : {&whole, &leaving}) request->start(std::span(tokens_).first(50));
  EXPECT_EQ(leaving.cache.bytes(), whole.cache.bytes()) << "all is there until somebody asks for room";
  auto& index = dynamic_cast<YieldingIndex&>(*leaving.cache.index);
  // A cell of 16 entries of both heads takes 8192 bytes in a layer, and 2048 of the head's keys, whose vectors double.
  // Slots for 9 entries, of which as many arrive: 2 * 8408. Five cells take 2 * 40960 for two layers, 40960 for one
  // that leaves and 8192 + 20480 of keys; with one layer away 16816 less 40960: at 65 tokens one has to leave. Six
  // cells with 16384 of keys take 49152 * 2 + 16816 + 16384 then: at 81 tokens the other one.
  constexpr int64_t kRoom = 130000;
  EXPECT_EQ(index.least_bytes(leaving.cache, 81), 3 * 16816 + 8192 + 2 * 12288);
  leaving.cache.ledger->restart_peaks();
  for (size_t i = 50; i < tokens_.size(); ++i) {
    index.yield(leaving.cache, kRoom, leaving.activity);
    EXPECT_EQ(leaving.pass(std::span(tokens_).subspan(i, 1)), whole.pass(std::span(tokens_).subspan(i, 1))) << i;
    const auto n = static_cast<int64_t>(i) + 1;
    EXPECT_EQ(leaving.cache.layers[1].index != nullptr, n >= 65) << n;
    EXPECT_EQ(leaving.cache.layers[0].index != nullptr, n >= 81) << n;
  }
  EXPECT_LE(leaving.cache.ledger->peak(Tier::device), kRoom);
  EXPECT_EQ(leaving.activity.traffic.offloaded_bytes, 2 * 96 * 2 * 2 * 32 * 4)
      << "layers, tokens, heads, key and value";
  EXPECT_GT(leaving.activity.traffic.loaded_bytes, 0);
}

TEST_F(SpeContextTest, LayersStayWhileTheBatchLeavesThemRoom) {
  const Prefill prompt = prefill(model_, testing::tiny_prompt(300), {}, kPrefillChunk, facts_);
  constexpr int64_t kRoom = 1'300'000;
  const auto run = [&](const json& settings, const BatchRunSettings& batch) {
    json spec = {{"name", "specontext"}, {"tokens", 32}, {"head", head_}};
    spec.update(settings);
    return run_batch(model_, prompt, *make_method(spec, "test"), {.stop = {.max_new_tokens = 40}}, batch);
  };
  const json adaptive = {{"offload", "adaptive"}};
  const auto alone = run(json::object(), {});
  EXPECT_EQ(run(json::object(), {.requests = 3, .device_bytes = kRoom}).peak_running, 1) << "of 653 kB each";
  const int64_t layer = 339 * 2 * 2 * 32 * 4;  // tokens, heads, key and value
  for (const auto& [requests, away] : std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {2, 2}, {3, 3}}) {
    const BatchRun batch = run(adaptive, {.requests = requests, .device_bytes = kRoom});
    EXPECT_EQ(batch.peak_running, requests);
    EXPECT_LE(batch.peak_bytes, kRoom);
    EXPECT_GE(batch.peak_bytes, 3 * 155'648 + 38'912) << "the prompt's own layers and keys";
    for (const auto& session : batch.sessions) {
      EXPECT_EQ(session->failure, "");
      EXPECT_EQ(session->tokens, alone.sessions.front()->tokens);
      EXPECT_EQ(session->activity.traffic.offloaded_bytes, away * layer) << requests;
      for (const TierBytes& held : session->tier_bytes) EXPECT_LE(held.device, kRoom / requests);
      EXPECT_LE(session->peak_bytes, kRoom / requests) << "inside passes, too";
    }
  }
  try {
    (void)run(adaptive, {.requests = 2, .device_bytes = 200'000});
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("bytes that one request may come to hold"), std::string::npos)
        << error.what();
  }
}

TEST_F(SpeContextTest, OffloadingChangesNoBitAndElasticLoadingMovesLess) {
  const Prefill prompt = prefill(model_, testing::tiny_prompt(300), {}, kPrefillChunk, facts_);
  const auto run = [&](const json& settings) {
    json spec = {{"name", "specontext"}, {"tokens", 64}, {"head", head_}};
    spec.update(settings);
    return testing::decode(model_, prompt, spec, 40);
  };
  const Decoded here = run(json::object());
  const Decoded elastic = run({{"offload", "all"}});
  const Decoded reloading = run({{"offload", "all"}, {"elastic", false}});
  EXPECT_EQ(elastic.tokens, here.tokens);
  EXPECT_EQ(elastic.logits, here.logits);
  EXPECT_EQ(reloading.logits, here.logits);
  const int64_t entry = 2 * 32 * 4;  // key and value of a head in float32
  const int64_t slots = 3 * 2 * 63 * entry;
  EXPECT_GT(elastic.resident_bytes, slots);
  EXPECT_LT(elastic.resident_bytes - slots, here.resident_bytes / 4);
  EXPECT_EQ(reloading.activity.traffic.loaded_bytes, 39 * 3 * 2 * 63 * entry)
      << "steps, layers, heads, chosen but the newest";
  EXPECT_LT(elastic.activity.traffic.loaded_bytes, reloading.activity.traffic.loaded_bytes);
  EXPECT_EQ(elastic.activity.traffic.offloaded_bytes, (300 + 39) * 3 * 2 * entry);
  EXPECT_EQ(here.activity.traffic.loaded_bytes, 0);
}

/// A request whose layers lie behind the device, on a machine with this tier, beside one with full KV: why it ended.
std::string failure_beside_another(Transformer& model, const storage::TierSettings& tier) {
  const auto facts = model_facts(model, {}, std::make_shared<const storage::Hierarchy>(std::vector{tier}));
  const Prefill prompt = prefill(model, testing::tiny_prompt(200), {}, kPrefillChunk, facts);
  const std::string head = testing::imported(model, "specontext", kDrafter);
  const auto method = make_method({{"name", "specontext"}, {"tokens", 64}, {"head", head}, {"offload", "all"}}, "test");
  const auto full = make_method({{"name", "full"}}, "test");
  const auto start = [&](const Method& own) {
    return start_session(model, prompt, own, {.stop = {.max_new_tokens = 30}});
  };
  const auto alone = start(*full);
  Session* const one[] = {alone.get()};
  run_together(model, one);
  auto guilty = start(*method);
  const auto other = start(*full);
  Session* const sessions[] = {guilty.get(), other.get()};
  run_together(model, sessions);
  EXPECT_EQ(other->tokens, alone->tokens);
  EXPECT_EQ(other->failure, "");
  std::string failure = guilty->failure;
  EXPECT_EQ(guilty->finish, failure.empty() ? FinishReason::length : FinishReason::failed);
  guilty.reset();
  EXPECT_EQ(facts->tiers->storage(tier.tier).used(), 0) << "nothing leaks";
  return failure;
}

TEST_F(SpeContextTest, AFaultOfTheLinkOrTheTierEndsItsRequestAlone) {
  const storage::LinkSpec real = storage::link_named("real", "test");
  const auto lost = [](int64_t transfer) {
    if (transfer == 17) throw UserError("host tier: the memory is gone");
  };
  EXPECT_EQ(failure_beside_another(model_, {.tier = Tier::host, .link = real, .fault = lost}),
            "host tier: the memory is gone");
  const auto slow = [](int64_t transfer) {
    if (transfer % 20 == 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  EXPECT_EQ(failure_beside_another(model_, {.tier = Tier::host, .link = real, .fault = slow}), "");
  const int64_t prompt_bytes = 200 * 3 * 2 * 2 * 32 * 4;  // tokens, layers, heads, key and value
  const std::string full =
      failure_beside_another(model_, {.tier = Tier::host, .capacity_bytes = prompt_bytes + 1000, .link = real});
  EXPECT_NE(full.find("host tier: found"), std::string::npos) << full;
}

TEST_F(SpeContextTest, SaysWhatDoesNotFit) {
  const auto message = [&](const std::filesystem::path& drafter, const LayerShape& shape) {
    return error_of([&] {
      const std::string head = testing::imported(model_, "specontext", drafter.string());
      Request({{"name", "specontext"}, {"tokens", 9}, {"head", head}}, shape, *facts_).start(tokens_);
    });
  };
  LayerShape eight = kGrouped;
  eight.q_heads = 8;
  EXPECT_NE(message(kDrafter, eight).find("4 query heads"), std::string::npos);

  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_drafter_{}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "pytorch_model.bin") << "x";
  EXPECT_NE(message(folder, kGrouped).find("pytorch_model.bin alone"), std::string::npos);
  std::filesystem::copy(kDrafter + "/model.safetensors", folder);
  std::ofstream(folder / "config.json") << "{}";
  EXPECT_NE(message(folder, kGrouped).find("num_attention_heads"), std::string::npos);
  const auto other = folder / "three_heads";
  std::filesystem::create_directory(other);
  std::filesystem::copy(kDrafter + "/model.safetensors", other);
  std::ofstream(other / "config.json") << R"({"num_attention_heads": 3})";
  const std::string misshapen = message(other, kGrouped);
  EXPECT_NE(misshapen.find("q_proj.weight"), std::string::npos) << misshapen;
  std::filesystem::remove_all(folder);
}

TEST_F(SpeContextTest, AnImportedDrafterIsFoundByItsModelAndRefusedByAnother) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kvarena_heads_{}", getpid());
  const auto file = folder / "tiny" / "specontext.safetensors";
  const auto facts = model_facts(model_, {folder});
  const auto fitter = make_method({{"name", "specontext"}, {"keep", 0.5}}, "test")->fitter();
  const FittedWeights made = import_fitted(*facts, *fitter, kDrafter, file);
  const FittedWeights drafter = read_fitted(kDrafter, retrieval_head_tensors());
  ASSERT_EQ(made.tensors.size(), 5U);
  for (const auto& [name, tensor] : drafter.tensors) EXPECT_EQ(made.tensors.at(name).values, tensor.values) << name;
  EXPECT_EQ(made.metadata.at("imported"), "specontext_eagle3");

  const auto chosen = [&](const json& head) {
    json spec = {{"name", "specontext"}, {"tokens", 9}};
    spec.update(head);
    Request request(spec, kGrouped, *facts);
    request.start(std::span(tokens_).first(95));
    return request.pass(std::span(tokens_).last(1));
  };
  EXPECT_EQ(chosen(json::object()), chosen({{"head", file.string()}}));
  ModelConfig config = testing::tiny_config();
  config.name = "another";
  const Transformer another = testing::tiny_model(2, {}, config);
  const auto others = model_facts(another);
  const auto refused = [&](const std::string& head) {
    return error_of([&] {
      Request({{"name", "specontext"}, {"tokens", 9}, {"head", head}}, kGrouped, *others).start(tokens_);
    });
  };
  const std::string own = " (fingerprint " + others->fingerprint.substr(0, 12) + ")";
  const std::string said = refused(file.string()), raw = refused(kDrafter);
  EXPECT_NE(said.find("found weights for tiny (fingerprint " + facts->fingerprint.substr(0, 12)), std::string::npos)
      << said;
  EXPECT_NE(said.find("expected weights for another" + own), std::string::npos) << said;
  EXPECT_NE(raw.find(kDrafter +
                     ": found weights that do not say which model they are for, expected weights for another" + own),
            std::string::npos)
      << raw;
  EXPECT_NE(raw.find("`kvarena fit specontext --from " + kDrafter + " --model ...`"), std::string::npos) << raw;
  config.vocab_size = 160;
  const auto import_error = [&] {
    const Transformer resized = testing::tiny_model(2, {}, config);
    return error_of([&] { (void)import_fitted(*model_facts(resized), *fitter, kDrafter, file); });
  };
  const std::string worded = import_error();
  EXPECT_NE(worded.find("vocab_size: found 128, expected 160, as another has it"), std::string::npos) << worded;
  config.vocab_size = 128;
  config.hidden_size = 128;
  const std::string wide = import_error();
  EXPECT_NE(wide.find("hidden_size: found 64, expected 128, as another has it"), std::string::npos) << wide;
  std::filesystem::remove_all(folder);
}

TEST(SpeContext, DraftsWhereItsLayersStayOnTheDevice) {
  std::vector<std::string> problems;
  const auto check = [&](const json& offload) {
    problems.clear();
    json drafter = {{"name", "specontext"}, {"tokens", 64}};
    drafter.update(offload);
    (void)Method::build({{"name", "vericache"}, {"drafter", drafter}}, "test", problems);
  };
  check(json::object());
  EXPECT_TRUE(problems.empty());
  check({{"offload", "all"}});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("test.drafter: found \"offload\": \"all\""), std::string::npos) << problems[0];
  check({{"feature", "previous"}});
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("test.drafter: found \"feature\": \"previous\""), std::string::npos) << problems[0];
}

}  // namespace
}  // namespace kvarena
