// In place of meeting.cpp where libtorch is older than its c10d::Backend (2.0): one rank alone is all there is.

#include "harness/core/error.h"
#include "harness/model/ranks/meeting.h"

namespace kvarena {
namespace {

[[noreturn]] void refuse() {
  fail({.place = "tensor_parallel",
        .found = "a program built with a libtorch that has no process groups",
        .expected = "one built with libtorch 2.0 or newer",
        .action = "run scripts/setup where it can download libtorch, and build again"});
}

}  // namespace

struct Meeting::Impl {};

Meeting::Meeting(const MeetingPlace& /*place*/, const Share& /*share*/, std::chrono::seconds /*patience*/) { refuse(); }
Meeting::~Meeting() = default;
void Meeting::say(const std::string& /*key*/, const std::string& /*text*/) { refuse(); }
std::optional<std::string> Meeting::heard(const std::string& /*key*/) { refuse(); }
std::string Meeting::wait_for(const std::string& /*key*/) { refuse(); }
void say_failure(Meeting& /*meeting*/, const std::string& /*reason*/) { refuse(); }
std::unique_ptr<RankChannel> group_channel(std::shared_ptr<Meeting> /*meeting*/, GroupOptions /*options*/) { refuse(); }

}  // namespace kvarena
