#pragma once
// The interface of every KV-cache method to the engine. Method authors derive from one of the narrow bases instead:
// scorer.h (dropping), codec.h (quantising), retriever.h (selecting), verifier.h (draft and verify), eviction.h
// (placing), reuser.h (entries of earlier prompts).

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cache/layer_cache.h"
#include "harness/core/nested.h"
#include "harness/core/parameters.h"
#include "harness/core/traffic.h"
#include "harness/method/layer_choice.h"
#include "harness/method/model_facts.h"
#include "harness/method/prompt_statistic.h"

namespace kvarena {

enum class Family { reference, compression, retrieval, prefill, reuse, eviction, verification };
[[nodiscard]] const char* to_string(Family family);

/// The prompt read a second time over its own full cache: the model is asked to repeat it, chunk by chunk, and what
/// the repetition attends to is observed. What it appends is thrown away. The prefix, which the chat template puts in
/// front of the user's text, is not repeated.
struct Reconstruction {
  int64_t chunk = 2048;          // prompt tokens repeated in one go
  std::string first;             // instruction in front of the first chunk
  std::string next;              // in front of the others, followed by the end of the chunk before
  int64_t tail = 8;              // tokens of that end
  std::optional<int64_t> sinks;  // first entries that share the softmax with the chunk behind them; absent: the prefix
  bool output_norm = false;      // weigh probabilities by |W_O v| / |attention input of the query|
  bool bare = false;             // without instructions and template, and the prefix is repeated too
  bool operator==(const Reconstruction&) const = default;
};

/// Where the residual stream is looked at: behind the second layer, in the middle, before the last three, and behind
/// the last, as drafting heads do (Li et al. 2025, EAGLE-3, arXiv:2503.01840: the inputs of layers 2, L / 2 and L - 3).
enum class Tap : uint8_t { low, middle, high, last };
/// The layer of `layers` behind which that is.
[[nodiscard]] int64_t tapped_layer(Tap tap, int64_t layers);

/// A window that holds every query of any prompt.
inline constexpr int64_t kWholePrompt = std::numeric_limits<int64_t>::max();

/// Observations that a method asks of the backend, as data, so that one prefill can serve many methods.
struct Needs {
  bool prompt_attention = false;                // attention each prompt entry received, summed over all prompt queries
  int64_t window = 0;                           // the last `window` prompt queries, to compute their attention
  bool step_attention = false;                  // probabilities of every decode step
  bool hidden = false;                          // attention inputs of the prompt
  bool output_projection = false;               // the weights that turn attended values into the residual stream
  bool step_hidden = false;                     // attention inputs of every decode step
  int64_t future = 0;                           // attention of so many tokens of the full-KV greedy continuation
  std::vector<int64_t> query_moments;           // of prompt queries before rotation, leaving out the first so many
  std::vector<Tap> taps;                        // the prompt's residual stream at these places
  std::vector<Reconstruction> reconstructions;  // extra passes over the full cache
  std::vector<std::string> restorations;        // folders of adapters whose tokens read the full cache
  PromptStatistics statistics;                  // gathered from all prompt queries
  bool sliding = true;  // all of it of layers with a window too, and their entries that no later query sees
};
[[nodiscard]] Needs combine(const Needs& a, const Needs& b);

/// Mean and covariance (divided by the number of queries) of queries before rotation.
struct QueryMoments {
  int64_t left_out = 0;            // first queries that do not count
  int64_t count = 0;               // queries that do; 0 leaves mean and covariance at 0
  std::vector<double> mean;        // [q_heads, head_dim]
  std::vector<double> covariance;  // [q_heads, head_dim, head_dim]
};

/// The attention of a reconstruction: the largest probability of each entry over all queries of its chunk; 0 for
/// entries that are not repeated.
struct ReconstructionScores {
  Reconstruction of;
  int64_t prefix = 0;         // entries in front of the repeated part
  std::vector<float> scores;  // [q_heads, n]
};

/// Entries of an adapter's own tokens behind the prompt: those of one pass of the adapted model over the full cache.
struct RestoredEntries {
  std::string adapter;  // its folder
  int64_t tokens = 0;
  std::vector<float> keys, values;  // [tokens, kv_heads, head_dim]
};

/// A prefill's observations of one layer. Attention is kept for each query head: how a method reduces query heads to
/// kv heads changes its results and is its own business.
struct LayerObservations {
  int64_t entries = 0;                  // n, the prompt's length; 0 of layers that nobody looks at
  std::vector<float> prompt_attention;  // [q_heads, n], empty unless needed
  std::vector<float> window_queries;    // [w, q_heads, head_dim], the last w queries, rotated
  std::vector<float> window_lse;        // [w, q_heads]
  int64_t window = 0;                   // w held, at most n
  std::vector<float> hidden;            // [n, hidden_size], empty unless needed
  /// Weights [hidden_size, q_heads * head_dim], unpacked at each call; null unless needed. The model must be alive.
  std::function<std::vector<float>()> output_projection;
  std::vector<float> future_attention;  // [q_heads, n], summed over the future's queries, empty unless needed
  std::vector<QueryMoments> query_moments;
  std::vector<float> residual;  // [n, hidden_size], behind this layer, empty unless tapped
  std::vector<ReconstructionScores> reconstructions;
  std::vector<RestoredEntries> restorations;
  std::vector<GatheredStatistic> statistics;
};

/// Proof that a method acted on a sample. A method whose counters are all zero is reported as inactive.
struct Activity {
  int64_t entries_dropped = 0;  // over heads and layers
  int64_t entries_packed = 0;   // entries stored in less than 16 bits
  int64_t entries_skipped = 0;  // entries a retrieval method did not attend to, over steps
  int64_t tokens_drafted = 0;
  int64_t tokens_accepted = 0;
  int64_t tokens_reused = 0;  // whose entries in the last layer were computed for another prompt
  Traffic traffic;

  [[nodiscard]] bool acted() const {
    return entries_dropped + entries_packed + entries_skipped + tokens_drafted + tokens_reused > 0;
  }
  Activity& operator+=(const Activity& other);
};

/// A request as a method sees it outside its layers.
struct RequestContext {
  KvCache& cache;
  Activity& activity;
  int64_t prompt_tokens = 0;
  const ModelFacts* model = nullptr;  // null in tests that need no model
};

/// One layer of one request, as a method sees it. Of a layer with a sliding window the prompt is the part of it that
/// the tokens behind it see.
struct LayerContext {
  int64_t layer = 0;
  int64_t layers = 0;  // of the model
  LayerCache& cache;
  Activity& activity;
  int64_t prompt_tokens = 0;
  const ModelFacts* model = nullptr;  // null in tests that need no model
  std::span<const int32_t> prompt;    // its tokens; empty while decoding
  KvCache* request = nullptr;         // the layer's whole cache; null in tests of a layer alone
  int64_t prompt_begin = 0;           // position of the first of these tokens
  /// Layers of this one's kind, with a window or without, that the method acts on, ascending; empty: all layers.
  std::span<const int64_t> peers = {};
  int64_t sharing = 0;  // layers that the method acts on and whose entries its budget is for; 0: all

  /// The layer's place among its peers, and their number: what a budget is divided by.
  [[nodiscard]] int64_t rank() const;
  [[nodiscard]] int64_t ranks() const { return peers.empty() ? layers : std::ssize(peers); }
  /// Layers that a budget in bytes is for.
  [[nodiscard]] int64_t budgeted() const { return sharing > 0 ? sharing : layers; }
};

namespace storage {
class Policy;
}
class Fitter;
class Pruner;
class Reuser;
class Verifier;

/// Parameters, needs and weights of a method, and of the narrow part that an author writes of one (Scorer, Codec, ...).
class MethodPart {
 public:
  virtual ~MethodPart() = default;

  /// Declares the parameters (harness/core/parameters.h).
  virtual void parameters(ParameterVisitor& /*p*/) {}
  /// Checks over several parameters; messages start with `place`.
  virtual void check(const std::string& /*place*/, std::vector<std::string>& /*problems*/) const {}
  [[nodiscard]] virtual Needs needs() const { return {}; }
  /// The fitter of the weights, null where there are none.
  [[nodiscard]] virtual std::unique_ptr<Fitter> fitter() const;
};

/// A request's method. It holds parameters only: all state of a request lives in the cache (scores of segments,
/// LayerIndex), so that copying a cache copies the request's whole state and one instance may serve many.
class Method : public MethodPart {
 public:
  /// The registered method with these settings ({"name": ..., parameters}), nested ones included. Adds every problem as
  /// a finished message that starts with `place`; null when the name is unknown.
  [[nodiscard]] static std::unique_ptr<Method> build(const nlohmann::json& settings, const std::string& place,
                                                     std::vector<std::string>& problems);

  /// The parameters, and behind them the choice of layers where the method has one.
  void settings(ParameterVisitor& p);
  /// Whether some layers can be left out of what it acts on.
  [[nodiscard]] virtual bool can_leave_layers_out() const { return pruner() == nullptr; }
  /// Gives the method a choice of layers ("layers"), those that see everything unless the settings say another.
  void choose_layers();
  /// The layers that it acts on: it is handed no others. All, of a method without a choice.
  [[nodiscard]] const LayerChoice& layers() const { return layers_; }
  [[nodiscard]] bool chooses_layers() const { return chooses_; }
  /// Whether the method needs of layers with a window what no later query sees.
  [[nodiscard]] virtual bool looks_behind_windows() const { return layers_.may_slide(); }
  /// needs(), and of which layers.
  [[nodiscard]] Needs asks() const;

  /// Compresses the prompt: called once, after the prompt's own dense attention, while the caches of the layers that it
  /// acts on still hold every entry, with these layers; once for each kind where they are of both. A method that
  /// decides over several layers at once overrides this; others are called layer by layer.
  virtual void compress_all(std::span<LayerContext> layers, std::span<const LayerObservations> seen) const {
    for (size_t layer = 0; layer < layers.size(); ++layer) compress(layers[layer], seen[layer]);
  }
  virtual void compress(LayerContext& /*layer*/, const LayerObservations& /*seen*/) const {}
  /// Whether compress_all() makes of a layer alone what it makes of it among all, so that a layer can be compressed
  /// before the next one is computed.
  [[nodiscard]] virtual bool compresses_by_layer() const { return false; }
  /// Called with tokens that join the request, the first at position cache.length, before their pass; their entries
  /// follow.
  virtual void on_tokens(RequestContext& /*request*/, std::span<const int32_t> /*tokens*/) const {}
  /// Called in each decode pass, after on_tokens() and before the first layer: `q_len` tokens are about to be fed.
  virtual void begin_step(RequestContext& /*request*/, int64_t /*q_len*/) const {}
  /// Called in each decode pass, after the new entries were appended and before attention: may set layer.cache.view.
  virtual void select(LayerContext& /*layer*/, const LayerQueries& /*queries*/) const {}
  /// Called in each decode pass, after attention, with the logarithms of the softmax denominators lse [q_len, q_heads].
  virtual void observe(LayerContext& /*layer*/, const LayerQueries& /*queries*/, const float* /*lse*/) const {}
  /// Packs what is due and evicts to the budget: called after entries were appended by any way.
  virtual void after_append(LayerContext& /*layer*/) const {}

  /// Tokens of a pass where the prompt goes through the model under the method's own hooks, as decoding does, the last
  /// token by itself; compress() is then not called, and logits and hidden states are not those of full KV. 0: prompts
  /// get full attention.
  [[nodiscard]] virtual int64_t prompt_pass() const { return 0; }
  /// Whether each decode pass shall also feed a guess at the next token, so that the method can prepare for it: the
  /// last row of a pass is the guess's (of the first pass, the first token's), and its entries are gone before
  /// after_append().
  [[nodiscard]] virtual bool looks_ahead() const { return false; }

  /// Why the method cannot draft, empty if it can: drafts are taken back, and several tokens come in one pass.
  [[nodiscard]] virtual std::string cannot_draft() const { return {}; }
  /// Whether layers follow the memory of the batch that the request runs in (timing.device_mib).
  [[nodiscard]] virtual bool follows_memory() const { return false; }

  /// Whether the method acts in compress() alone: later entries stay as they are, so that another method may pack what
  /// it leaves ("over").
  [[nodiscard]] virtual bool only_compresses() const { return false; }
  /// How far the method reaches into decoding passes: a device computes what it leaves alone.
  [[nodiscard]] virtual HookAccess reach() const {
    return only_compresses() ? HookAccess::nothing : HookAccess::attention;
  }

  /// The draft-and-verify side of a verification method, null for all others.
  [[nodiscard]] virtual const Verifier* verifier() const { return nullptr; }
  /// The reusing side of a method, which fills a prompt's cache in place of a full prefill; null for all others.
  [[nodiscard]] virtual const Reuser* reuser() const { return nullptr; }
  /// The pruning side of a method, which drops tokens between two layers of the prefill; null for methods that start
  /// from a full one. The prompt is then read once more for this method alone, and compress_all() gets what its layers
  /// computed.
  [[nodiscard]] virtual const Pruner* pruner() const { return nullptr; }

  /// The policy by which a store of many contexts places their caches; null for methods that act on one request's
  /// cache.
  [[nodiscard]] virtual const storage::Policy* placement() const { return nullptr; }

 private:
  LayerChoice layers_;
  bool chooses_ = false;
};

/// Adds a problem where a method that acts within another one, on the layers of that, has a choice of its own.
void check_within(const Nested<Method>& inner, const std::string& place, std::vector<std::string>& problems);

}  // namespace kvarena
