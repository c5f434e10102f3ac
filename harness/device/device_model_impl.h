#pragma once
// The parts of DeviceModel, for the files that make it up.

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "harness/device/device_attention.h"
#include "harness/device/device_feed_forward.h"
#include "harness/device/device_model.h"
#include "harness/device/device_weights.h"
#include "harness/device/recorded_steps.h"
#include "harness/device/step_inputs.h"
#include "harness/device/workspace.h"
#include "harness/model/rope_frequencies.h"
#include "kernels/attention/attention_cuda.h"

namespace kvarena::device {

/// The layers of a model that are on one device, and what a pass through them takes there. All functions but the
/// constructor are called where the calling thread's device is this one.
struct DeviceModel::Stage {
  /// Entries of a run, on the device.
  struct IndexList {
    const int32_t* entries = nullptr;
    int64_t count = 0;

    /// Lists of known counts that lie one behind the other from `at` on; where they end.
    static const int32_t* place(std::span<IndexList> lists, const int32_t* at) {
      for (IndexList& list : lists) at = (list.entries = at) + list.count;
      return at;
    }
  };

  /// A sequence's choice in a layer where the host makes it.
  struct LayerChoice {
    AttentionSelection choice;         // its runs and queries lie on the device
    std::vector<IndexList> lists_own;  // what it lists: [kv_heads] or [q_heads] of the layer's runs,
    std::vector<std::vector<IndexList>> lists_fronts,
        lists_extra;  // of each front [kv_heads], of each extra as the runs'
  };

  /// One sequence of a pass under way, with the choice of the layer under way.
  struct Sequence : LayerChoice {
    const DevicePass* pass = nullptr;
    DeviceCache* cache = nullptr;  // null where the host attends
    int64_t first_row = 0, rows = 0;
    int64_t most = 0;                          // entries that a run may come to have while the pass is replayed
    int64_t first_list = 0;                    // where its lists begin among all
    int64_t shared = 0;                        // of a tree: entries that all rows see alike, whole chunks
    std::vector<std::vector<int32_t>> paths;   // [rows] of a tree: what each sees from there on
    LayerChoice ahead;                         // of the next layer, where choices are known
    std::vector<std::vector<IndexList>> kept;  // [layers][kv_heads], fresh ones too; empty where all entries are there
  };

  /// Arguments of one call of the attention kernels. Problems point to runs, which have their room from the start.
  struct AttentionCall {
    std::vector<kernels::HeadRun> runs;
    std::vector<kernels::AttendProblem> problems;
    std::vector<kernels::RunGrowth> growth;  // [problems]
  };

  /// Packed entries of one that it attends to.
  struct SegmentPass {
    const Sequence* sequence = nullptr;
    const DeviceSegment* front = nullptr;
    std::span<const IndexList> lists;  // [kv_heads], these entries alone; empty: all
  };

  int64_t device;
  int64_t begin, end;  // layers
  const ModelConfig& config;
  const TransformerOptions& options;
  const DeviceWeights& weights;
  const RopeFrequencies& rope;
  const std::vector<PlacedLayer>& shapes;  // [layers], of all

  kernels::CudaQueue compute, bus;
  kernels::CudaScratch scratch, bus_scratch, kept_lists;
  /// Memory for what choices list, and for what they bring up: of choices that are waited for on `compute`, of known
  /// ones on `bus`.
  struct ChoiceScratch {
    kernels::CudaScratch lists, entries;
  } waited, known;
  int64_t slot_bytes = 0;                     // of entries that went up to slots so far
  kernels::CudaMark computed;                 // the residual stream, on `compute`
  kernels::CudaMark received;                 // that of the stage before, on `compute`
  kernels::CudaMark begun;                    // of a pass, on `compute`
  std::array<kernels::CudaMark, 2> fetched;   // of a layer's windows, on `bus`
  std::array<kernels::CudaMark, 2> attended;  // the same, on `compute`
  InputBuffer inputs;
  StepInputs told;
  DownloadedRows brought;
  int64_t moves = 0;
  int64_t until = 0;      // the layer behind those of this stage that the pass under way visits
  int64_t rows = 0;       // R, of the pass under way
  Workspace x;            // [R, hidden_size], the residual stream
  Workspace normed;       // [R, hidden_size]
  Workspace seen;         // [R, q_heads, head_dim of the cache]
  Workspace running;      // [R, q_heads] maxima, then [R, q_heads] sums
  Workspace lse;          // [R, q_heads], when it is brought to the host
  Workspace mapped;       // [R, q_heads, head_dim of the cache]: queries as mapped keys want them, or attended values
  Workspace own;          // [R, q_heads, head_dim of the cache + 2]: attention state of mapped values
  Workspace dequantized;  // where entries are dequantised
  int64_t dequantized_at_once = 0;  // entries that it has room for
  Workspace logits;                 // [wanted rows, vocab_size]
  kernels::CudaBuffer best;         // [wanted rows] of int32_t
  PinnedWorkspace answer;
  PinnedWorkspace host_seen;  // [R, q_heads, head_dim of the cache], of rows that attended on the host
  std::vector<Sequence> sequences;
  DeviceAttention attention;
  DeviceFeedForward feed_forward;

  RecordedSteps steps;

  /// Layers begin .. end-1 of the model, which outlives this. To be called where the thread's device is theirs.
  Stage(const Impl& model, int64_t begin, int64_t end);

  /// The shape of every layer, but for its window.
  [[nodiscard]] const LayerShape& shape() const { return shapes.front(); }

  /// Queues what a pass through the model's first `depth` layers does here, behind the stage before it, if any.
  void pass(std::span<const DevicePass> batch, Download bring, int64_t depth, Stage* before, bool recording);
  void prepare(std::span<const DevicePass> batch);
  void tell();
  void list_kept();
  /// Memory for the pass, and to bring rows of some layers to the host.
  void make_room(Download bring, int64_t first_layer, int64_t layers);
  void receive(Stage& before);
  /// `recorded`: it will be replayed.
  void run(kernels::CudaScratch& with, bool recorded);
  void run_or_replay(bool recording);
  [[nodiscard]] std::vector<int64_t> key_of_step() const;
  void mlp_block(int64_t layer);
  void head();
  void predict(int64_t count);
  [[nodiscard]] std::span<const float> download(const DeviceLogits& made);
  [[nodiscard]] std::vector<int32_t> largest(const DeviceLogits& made);
  void normalise(const float* from, const DeviceVector& weight, float* to, int64_t count);

  // device_model_attention.cpp
  void attention_block(int64_t layer, kernels::CudaScratch& with);
  void fetch(int64_t layer);
  void append(int64_t layer, const QkvRows& from, kernels::CudaScratch& with);
  void attend(int64_t layer, const QkvRows& from, kernels::CudaScratch& with);
  void add_chain(int64_t layer, size_t sequence, const QkvRows& from, const kernels::AttentionState& all,
                 AttentionCall& call) const;
  void add_paths(int64_t layer, const Sequence& s, const QkvRows& from, const kernels::AttentionState& all,
                 AttentionCall& call) const;
  void attend_shared(int64_t layer, const QkvRows& from, const kernels::AttentionState& all,
                     kernels::CudaScratch& with);
  [[nodiscard]] kernels::AttendArgs attend_args(std::span<const kernels::AttendProblem> problems) const;
  [[nodiscard]] kernels::AttendProblem problem_of(int64_t first_row, int64_t count, const QkvRows& from,
                                                  const kernels::AttentionState& all) const;
  /// The part from one row on of a state of all rows.
  [[nodiscard]] kernels::AttentionState part_of(const kernels::AttentionState& all, int64_t first_row) const;
  void attend_on_host(int64_t layer);

  // device_model_segments.cpp
  void attend_segments(int64_t layer, const QkvRows& from, const kernels::AttentionState& all,
                       kernels::CudaScratch& with);
  void attend_segments(std::span<const SegmentPass> fronts, const QkvRows& from, const kernels::AttentionState& all,
                       kernels::CudaScratch& with);
  void attend_dequantized(const SegmentPass& part, const QkvRows& from, const kernels::AttentionState& all,
                          kernels::CudaScratch& with);
  [[nodiscard]] bool any_mapped() const;
  /// Entries that are dequantised at once in the pass under way.
  [[nodiscard]] int64_t most_dequantized() const;

  // device_model_selections.cpp
  void choose_on_host(int64_t layer, const QkvRows& from);
  void take_ahead();
  /// Asks for the choices that are known before the pass, or for those that are not.
  void choose(int64_t layer, bool known_ones);
  void upload_chosen(int64_t layer, std::span<Sequence* const> chosen, bool known_ones);
  void store_fresh(const QkvRows& from);
  static void add_listed(std::span<const kernels::HeadRun> runs, std::span<const IndexList> lists,
                         std::vector<kernels::HeadRun>& to);
  void add_chosen(int64_t layer, const Sequence& s, const QkvRows& from, const kernels::AttentionState& all,
                  AttentionCall& call) const;
  void attend_extra(const QkvRows& from, const kernels::AttentionState& all, kernels::CudaScratch& with);
  void attend(std::span<const kernels::AttendProblem> problems, std::span<const kernels::AttendProblem> by_query_head,
              kernels::CudaScratch& with, std::span<const kernels::RunGrowth> growth = {});

  [[nodiscard]] bool any_on_host() const {
    return std::ranges::any_of(sequences, [](const Sequence& s) { return on_host(s); });
  }
  /// Whether its entries come over the bus.
  [[nodiscard]] static bool on_host(const Sequence& s) {
    return s.cache != nullptr && s.cache->placement() == Placement::host;
  }
  /// Lists of what it attends to: of a tree by row, otherwise by kv head; nothing where that is not chosen.
  [[nodiscard]] static std::span<const std::vector<int32_t>> lists(const Sequence& s) {
    if (!s.paths.empty()) return s.paths;
    return s.cache != nullptr ? s.cache->lists_ : std::span<const std::vector<int32_t>>{};
  }
  /// Whether nothing is chosen for all layers alike, or not for this one.
  [[nodiscard]] static bool sees_all(const DevicePass& pass, int64_t layer) {
    return pass.attended == nullptr || (pass.whole != nullptr && (*pass.whole)[static_cast<size_t>(layer)]);
  }
  [[nodiscard]] bool any_attends_on_host() const {
    return std::ranges::any_of(sequences, [](const Sequence& s) { return s.cache == nullptr; });
  }
  [[nodiscard]] static bool chooses(const Sequence& s, bool known_ones) {
    return s.pass->choice != nullptr && s.pass->choice->known() == known_ones;
  }
  /// The place of a choice under way: known ones are made a layer ahead.
  [[nodiscard]] static LayerChoice& choice_of(Sequence& s, bool known_ones) { return known_ones ? s.ahead : s; }
  [[nodiscard]] ChoiceScratch& scratch_of(bool known_ones) { return known_ones ? known : waited; }
  [[nodiscard]] kernels::CudaStream stream_of(bool known_ones) const { return (known_ones ? bus : compute).stream(); }
  [[nodiscard]] bool any_chooses(bool known_ones) const {
    return std::ranges::any_of(sequences, [&](const Sequence& s) { return chooses(s, known_ones); });
  }
  /// Whether the host has a part in each layer that takes rows.
  [[nodiscard]] bool waits_for_host() const { return any_attends_on_host() || any_chooses(false); }
  [[nodiscard]] static int64_t wanted_rows(const Sequence& s) {
    return s.pass->logits == LogitsRows::all ? s.rows : s.pass->logits == LogitsRows::last ? 1 : 0;
  }
  [[nodiscard]] int64_t wanted_rows() const {
    int64_t all = 0;
    for (const Sequence& s : sequences) all += wanted_rows(s);
    return all;
  }
};

struct DeviceModel::Impl {
  ModelConfig config;
  TransformerOptions options;
  DeviceWeights weights;
  RopeFrequencies rope;
  std::vector<PlacedLayer> shapes;             // [layers]
  std::vector<std::unique_ptr<Stage>> stages;  // in the order of layers
  bool recording = true;

  Impl(const ModelConfig& config, const TransformerOptions& options, std::span<const int64_t> devices,
       DeviceWeights weights);

  void check(std::span<const DevicePass> batch) const;
  /// Makes room for what a pass adds to its caches.
  void grow(std::span<const DevicePass> batch) const;
  [[nodiscard]] Stage& stage_of(int64_t layer) const;
  /// The stage that makes logits.
  [[nodiscard]] Stage& last() const { return *stages.back(); }
  void synchronize() const;

  class Rows;  // device_rows.cpp
};

}  // namespace kvarena::device
