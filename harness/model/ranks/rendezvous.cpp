// The only file that knows libtorch's process groups. Messages are tensors sent and received by a c10d::Backend.

#include "harness/model/ranks/rendezvous.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};    // between two looks at the board
constexpr milliseconds kNews{2000};  // until the system knows of a process that has just died
constexpr auto kForever = std::chrono::hours(24 * 365);

std::string rank_name(int64_t rank, int64_t ranks) { return fmt::format("rank {} of {}", rank, ranks); }

/// Libraries put stack traces into what().
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string address(const RendezvousAddress& place) {
  return place.file.empty() ? fmt::format("{}:{}", place.host, place.port) : place.file.string();
}

std::string loaded_key(int64_t rank) { return fmt::format("loaded/{}", rank); }
std::string failed_key(int64_t rank) { return fmt::format("failed/{}", rank); }

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

/// A socket that listens at the address and nowhere else. Nothing when the host is a name: another machine may know it
/// by another address than this one does, so that every interface is listened on.
std::optional<int> listen_at(const RendezvousAddress& place) {
  const std::string host = place.host == "localhost" ? "127.0.0.1" : place.host;
  const addrinfo hints{.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), fmt::format("{}", place.port).c_str(), &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  const int socket = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      ::bind(socket, list->ai_addr, list->ai_addrlen) == 0 && ::listen(socket, SOMAXCONN) == 0) {
    return socket;
  }
  const std::string reason = std::strerror(errno);
  if (socket >= 0) ::close(socket);
  throw std::runtime_error(reason);
}

c10::intrusive_ptr<c10d::Store> open_store(const RendezvousAddress& place, const Share& share,
                                           std::chrono::seconds wait_limit) {
  if (!place.file.empty()) {
    return c10::make_intrusive<c10d::FileStore>(place.file.string(), static_cast<int>(share.ranks));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = share.rank == 0;
  options.waitWorkers = false;
  options.timeout = wait_limit;
  if (options.isServer) options.masterListenFd = listen_at(place);  // which the store closes
  return c10::make_intrusive<c10d::TCPStore>(place.host, options);
}

}  // namespace

struct Rendezvous::Impl {
  c10::intrusive_ptr<c10d::Store> store;
};

Rendezvous::Rendezvous(const RendezvousAddress& place, const Share& share, std::chrono::seconds wait_limit)
    : place_(place), share_(share), wait_limit_(wait_limit), impl_(std::make_unique<Impl>()) {
  try {
    impl_->store = open_store(place, share, wait_limit);
    impl_->store->setTimeout(wait_limit);
  } catch (const std::exception& error) {
    fail({.place = address(place),
          .found = first_line(error.what()),
          .expected = share.rank == 0 ? "an address of this machine with a free port" : "the driver of a split model",
          .action = share.rank == 0 ? "" : "start the driver first, and check host, port and firewalls"});
  }
}

Rendezvous::~Rendezvous() = default;

void Rendezvous::say(const std::string& key, const std::string& text) {
  try {
    impl_->store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception& error) {
    fail({.place = address(place_), .found = first_line(error.what()), .expected = "the meeting of a model's ranks"});
  }
}

std::optional<std::string> Rendezvous::heard(const std::string& key) {
  try {
    if (!impl_->store->check({key})) return std::nullopt;
  } catch (const std::exception& error) {
    fail({.place = address(place_), .found = first_line(error.what()), .expected = "the meeting of a model's ranks"});
  }
  return wait_for(key);
}

std::string Rendezvous::wait_for(const std::string& key) {
  try {
    const std::vector<uint8_t> said = impl_->store->get(key);
    return {said.begin(), said.end()};
  } catch (const std::exception& error) {
    fail({.place = address(place_),
          .found = first_line(error.what()),
          .expected = fmt::format("word of the driver within {} s", wait_limit_.count())});
  }
}

void set_failure(Rendezvous& rendezvous, const std::string& reason) {
  rendezvous.say(failed_key(rendezvous.share().rank), reason);
}

class GroupChannel final : public RankChannel {
 public:
  GroupChannel(std::shared_ptr<Rendezvous> rendezvous, GroupOptions options)
      : rendezvous_(std::move(rendezvous)), options_(std::move(options)) {}

  [[nodiscard]] Share share() const override { return rendezvous_->share(); }

  void meet() override {
    if (share().rank == 0) {
      wait_for_others();
    } else {
      rendezvous_->say(loaded_key(share().rank), "yes");
    }
    try {
      form();
    } catch (const std::exception& error) {
      fail({.place = rank_name(share().rank, share().ranks),
            .found = first_line(error.what()),
            .expected = "a connection between all ranks",
            .action = news()});
    }
  }

  [[nodiscard]] std::string lost() override { return options_.lost ? options_.lost(milliseconds(0)) : ""; }

  [[nodiscard]] std::unique_ptr<Transfer> send(int64_t to, std::span<const float> data) override {
    return begin(to, const_cast<float*>(data.data()), data.size(), WaitLimit::answer, &c10d::Backend::send);
  }
  [[nodiscard]] std::unique_ptr<Transfer> receive(int64_t from, std::span<float> data, WaitLimit wait_limit) override {
    return begin(from, data.data(), data.size(), wait_limit, &c10d::Backend::recv);
  }

  /// Throws the UserError that says who is lost.
  [[noreturn]] void mourn(int64_t other, const std::string& how) const {
    const std::string said = news();
    if (!said.empty()) throw UserError(said);
    fail({.place = rank_name(other, share().ranks),
          .found = first_line(how),
          .expected = fmt::format("an answer within {} s", options_.answer.count())});
  }

 private:
  using Call = c10::intrusive_ptr<c10d::Work> (c10d::Backend::*)(std::vector<at::Tensor>&, int, int);

  class Message final : public Transfer {
   public:
    Message(const GroupChannel& channel, int64_t other, milliseconds longest, c10::intrusive_ptr<c10d::Work> work)
        : channel_(&channel), other_(other), longest_(longest), work_(std::move(work)) {}
    void wait() override {
      try {
        work_->wait(longest_);
      } catch (const std::exception& error) {
        channel_->mourn(other_, error.what());
      }
    }

   private:
    const GroupChannel* channel_;
    int64_t other_;
    milliseconds longest_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  struct Nothing final : Transfer {
    void wait() override {}
  };

  [[nodiscard]] std::unique_ptr<Transfer> begin(int64_t other, float* data, size_t count, WaitLimit wait_limit,
                                                Call call) {
    if (count == 0) return std::make_unique<Nothing>();  // both sides know that there is nothing to say
    std::vector<at::Tensor> tensors{at::from_blob(data, {static_cast<int64_t>(count)}, at::kFloat)};
    try {
      return std::make_unique<Message>(
          *this, other, wait_limit == WaitLimit::idle ? milliseconds(kForever) : milliseconds(options_.answer),
          (group_.get()->*call)(tensors, static_cast<int>(other), /*tag=*/0));
    } catch (const std::exception& error) {
      mourn(other, error.what());
    }
  }

  /// Ranks that meet on one machine talk over its loopback, others over the interfaces that GLOO_SOCKET_IFNAME names,
  /// or the one of the machine's host name.
  void form() {
    using c10d::ProcessGroupGloo;
    const bool here = !rendezvous_->place_.file.empty() || is_loopback(rendezvous_->place_.host);
    auto options = here ? ProcessGroupGloo::Options::create(options_.answer)
                        : ProcessGroupGloo::Options::create_default(options_.answer);
    if (here) options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options->threads = 1;  // threads of collectives, which are not used
    group_ = c10::make_intrusive<ProcessGroupGloo>(rendezvous_->impl_->store, static_cast<int>(share().rank),
                                                   static_cast<int>(share().ranks), std::move(options));
  }

  void wait_for_others() {
    const Clock::time_point begin = Clock::now();
    for (int64_t rank = 1; rank < share().ranks; ++rank) {
      while (!rendezvous_->heard(loaded_key(rank))) {
        if (const auto reason = rendezvous_->heard(failed_key(rank))) {
          throw UserError(fmt::format("{}: {}", rank_name(rank, share().ranks), *reason));
        }
        if (const std::string said = options_.lost ? options_.lost(kLook) : ""; !said.empty()) throw RankLost(said);
        if (!options_.lost) std::this_thread::sleep_for(kLook);
        if (Clock::now() - begin > options_.arrival) {
          fail({.place = rank_name(rank, share().ranks),
                .found = fmt::format("no sign of it after {} s", options_.arrival.count()),
                .expected = fmt::format("its share loaded, at {}", address(rendezvous_->place_))});
        }
      }
    }
  }

  [[nodiscard]] std::string news() const { return options_.lost ? options_.lost(kNews) : ""; }

  std::shared_ptr<Rendezvous> rendezvous_;
  GroupOptions options_;
  c10::intrusive_ptr<c10d::Backend> group_;
};

std::unique_ptr<RankChannel> group_channel(std::shared_ptr<Rendezvous> rendezvous, GroupOptions options) {
  return std::make_unique<GroupChannel>(std::move(rendezvous), std::move(options));
}

}  // namespace kvarena
