#include "harness/model/ranks/split_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/home.h"
#include "harness/model/open_model.h"
#include "harness/model/ranks/rank_processes.h"
#include "harness/model/ranks/rendezvous.h"

namespace kvarena {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kModelKey = "model";
/// Covers the driver's work before it listens, and ranks that Slurm starts before it.
constexpr std::chrono::seconds kWaitLimit{600};

/// Most ranks that are started on one machine: more are a slip.
constexpr int64_t kMostHere = 64;

/// A folder that others cannot look into, with the file where ranks meet. It is locked while its driver lives, so that
/// the next driver removes what one that was killed has left.
class PrivateFolder {
 public:
  PrivateFolder() : path_((fs::temp_directory_path() / (std::string(kBegin) + "XXXXXX")).string()) {
    remove_abandoned();
    if (::mkdtemp(path_.data()) == nullptr) {
      fail({.place = path_, .found = "no folder can be made there", .expected = "room for files that ranks share"});
    }
    lock_ = locked(path_);
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (lock_ >= 0) ::close(lock_);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  [[nodiscard]] fs::path file() const { return fs::path(path_) / "meeting"; }

 private:
  static constexpr std::string_view kBegin = "kvarena-ranks-";

  /// A descriptor that holds the folder's lock; -1 when another process has it, or may not be disturbed.
  static int locked(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
    ::close(descriptor);
    return -1;
  }

  static void remove_abandoned() {
    constexpr std::chrono::seconds kYoung{5};  // its driver may not have locked it yet
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(), gone)) {
      if (!entry.path().filename().string().starts_with(kBegin)) continue;
      if (fs::file_time_type::clock::now() - fs::last_write_time(entry, gone) < kYoung) continue;
      const int descriptor = locked(entry.path());
      if (descriptor < 0) continue;
      fs::remove_all(entry.path(), gone);
      ::close(descriptor);
    }
  }

  std::string path_;
  int lock_ = -1;
};

/// A channel to ranks that live as long as it.
class OwnedRanks final : public RankChannel {
 public:
  explicit OwnedRanks(const SplitModel& model) {
    rendezvous_ = std::make_shared<Rendezvous>(RendezvousAddress{.file = folder_.file()},
                                               Share{.rank = 0, .ranks = model.ranks}, kWaitLimit);
    processes_ = std::make_unique<RankProcesses>(
        std::vector<std::string>{model.program, "local-rank", "--meet", folder_.file().string()}, model.ranks);
    channel_ =
        group_channel(rendezvous_, {.lost = [this](std::chrono::milliseconds wait) { return processes_->lost(wait); }});
  }
  /// Closed first, so that ranks see that the driver has gone.
  ~OwnedRanks() override { channel_.reset(); }

  [[nodiscard]] Rendezvous& rendezvous() { return *rendezvous_; }
  [[nodiscard]] Share share() const override { return channel_->share(); }
  void meet() override { channel_->meet(); }
  [[nodiscard]] std::string lost() override { return channel_->lost(); }
  [[nodiscard]] std::unique_ptr<Transfer> send(int64_t to, std::span<const float> data) override {
    return channel_->send(to, data);
  }
  [[nodiscard]] std::unique_ptr<Transfer> receive(int64_t from, std::span<float> data, WaitLimit wait_limit) override {
    return channel_->receive(from, data, wait_limit);
  }

 private:
  PrivateFolder folder_;
  std::shared_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<RankProcesses> processes_;
  std::unique_ptr<RankChannel> channel_;
};

/// The model's description for the ranks: path of the checkpoint on this machine, and below KVARENA_HOME on any.
std::string description(const SplitModel& model) {
  const fs::path path = fs::absolute(model.checkpoint).lexically_normal();
  const fs::path below = path.lexically_relative(fs::absolute(kvarena_home()).lexically_normal());
  json value = {{"path", path.string()},
                {"weights", std::string(kernels::name_of(model.weights))},
                {"devices", model.devices},
                {"threads", omp_get_max_threads()}};
  if (!below.empty() && *below.begin() != "..") value["below_home"] = below.string();
  return value.dump();
}

fs::path checkpoint_of(const RankOptions& options, const json& model) {
  if (!options.checkpoint.empty()) return find_model(options.checkpoint.string());
  const fs::path path = model.at("path").get<std::string>();
  if (fs::exists(path) || !model.contains("below_home")) return path;
  return kvarena_home() / model.at("below_home").get<std::string>();
}

kernels::DType dtype_named(const std::string& name) {
  for (const kernels::DType dtype : {kernels::DType::f32, kernels::DType::f16, kernels::DType::bf16}) {
    if (name == kernels::name_of(dtype)) return dtype;
  }
  fail({.place = "the driver", .found = fmt::format("weights of type {}", name), .expected = "f32, f16 or bf16"});
}

void check(const RankOptions& options) {
  const Share& share = options.share;
  if (share.ranks < 2 || share.rank < 1 || share.rank >= share.ranks) {
    fail({.place = "--rank",
          .found = fmt::format("{}/{}", share.rank, share.ranks),
          .expected = "I/N with N at least 2 and I from 1 to N-1; rank 0 is the program that runs the model"});
  }
  if (options.join.empty() == options.meet.empty()) {
    fail({.place = "--join", .found = options.join.empty() ? "nothing" : "--meet beside it", .expected = "HOST:PORT"});
  }
}

}  // namespace

std::unique_ptr<RankChannel> gather_ranks(const SplitModel& model) {
  if (model.ranks == 1) return nullptr;
  if (model.listen.empty()) {
    if (model.ranks > kMostHere) {
      fail({.place = "tensor_parallel",
            .found = fmt::format("{} processes on this machine", model.ranks),
            .expected = fmt::format("at most {}", kMostHere),
            .action = "give \"ranks_at\" for ranks on several machines"});
    }
    auto ranks = std::make_unique<OwnedRanks>(model);
    ranks->rendezvous().say(kModelKey, description(model));
    return ranks;
  }
  const auto rendezvous = std::make_shared<Rendezvous>(parse_address(model.listen, "ranks_at"),
                                                       Share{.rank = 0, .ranks = model.ranks}, kWaitLimit);
  rendezvous->say(kModelKey, description(model));
  return group_channel(rendezvous, {});
}

void run_rank(const RankOptions& options) {
  check(options);
  const RendezvousAddress place =
      options.join.empty() ? RendezvousAddress{.file = options.meet} : parse_address(options.join, "--join");
  const auto rendezvous = std::make_shared<Rendezvous>(place, options.share, kWaitLimit);
  try {
    const json model = json::parse(rendezvous->wait_for(kModelKey));
    const auto asked =
        options.threads == 0 && options.join.empty() ? model.at("threads").get<int64_t>() : options.threads;
    if (asked > 0) omp_set_num_threads(static_cast<int>(asked));
    const OpenedModel opened = open_model(checkpoint_of(options, model));
    const kernels::DType dtype = dtype_named(model.at("weights"));
    const auto channel = group_channel(rendezvous, {});
    std::unique_ptr<RankDevice> device;
    if (model.at("devices").get<bool>()) {
      device = options.open_device(opened.config, *opened.checkpoint, dtype, options.share);
    }
    serve_rank(opened.config, *opened.checkpoint, dtype, *channel, device.get());
  } catch (const std::exception& error) {
    const std::string reason = error.what();
    try {
      set_failure(*rendezvous, reason);
    } catch (const UserError&) {
      // The driver has gone too: there is no one to report to.
    }
    throw;
  }
}

}  // namespace kvarena
