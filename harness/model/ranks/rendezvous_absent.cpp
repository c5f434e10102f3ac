// In place of rendezvous.cpp where libtorch is older than its c10d::Backend (2.0): one rank alone is all there is.

#include "harness/core/error.h"
#include "harness/model/ranks/rendezvous.h"

namespace kvarena {
namespace {

[[noreturn]] void refuse() {
  fail({.place = "tensor_parallel",
        .found = "a program built with a libtorch that has no process groups",
        .expected = "one built with libtorch 2.0 or newer",
        .action = "run scripts/setup where it can download libtorch, and build again"});
}

}  // namespace

struct Rendezvous::Impl {};

Rendezvous::Rendezvous(const RendezvousAddress& /*place*/, const Share& /*share*/,
                       std::chrono::seconds /*wait_limit*/) {
  refuse();
}
Rendezvous::~Rendezvous() = default;
void Rendezvous::say(const std::string& /*key*/, const std::string& /*text*/) { refuse(); }
std::optional<std::string> Rendezvous::heard(const std::string& /*key*/) { refuse(); }
std::string Rendezvous::wait_for(const std::string& /*key*/) { refuse(); }
void set_failure(Rendezvous& /*rendezvous*/, const std::string& /*reason*/) { refuse(); }
std::unique_ptr<RankChannel> group_channel(std::shared_ptr<Rendezvous> /*rendezvous*/, GroupOptions /*options*/) {
  refuse();
}

}  // namespace kvarena
