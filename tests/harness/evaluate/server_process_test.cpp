// Servers that a run starts: that one is up at a time, with its settings, and that none outlives the run.

#include "harness/evaluate/server_process.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "harness/core/failure.h"
#include "harness/core/files.h"
#include "harness/evaluate/server_entry.h"
#include "tests/harness/evaluate/served_run.h"

namespace kvarena::evaluate {
namespace {

constexpr double kSeconds = 20;

bool wait_for(const std::function<bool()>& done) {
  for (int i = 0; i < 200; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

bool gone(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(status, line);
  return line.empty() || line.find(") Z ") != std::string::npos;
}

class Processes : public ::testing::Test {
 protected:
  /// A shell that starts another process and waits, once both have said who they are.
  [[nodiscard]] std::vector<std::string> two() const {
    return {"sh", "-c",
            fmt::format("sleep 300 & echo $! > {0}/child; echo $$ > {0}/own; wait", folder_.path().string())};
  }
  [[nodiscard]] bool told() const { return pid("child") > 0 && pid("own") > 0; }
  [[nodiscard]] pid_t pid(const char* name) const {
    pid_t number = 0;
    std::ifstream(folder_ / name) >> number;
    return number;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Processes, EndWithAllThatTheyStarted) {
  {
    ServerProcess server(two());
    server.wait_until([&] { return told(); }, kSeconds);
    EXPECT_TRUE(server.alive());
    EXPECT_FALSE(gone(pid("child")));
  }
  EXPECT_TRUE(gone(pid("own")));
  EXPECT_TRUE(wait_for([&] { return gone(pid("child")); }));
}

TEST_F(Processes, EndWhenTheirRunIsKilled) {
  const pid_t run = ::fork();
  if (run == 0) {
    ServerProcess server(two());
    ::pause();
    ::_exit(0);
  }
  ASSERT_TRUE(wait_for([&] { return told(); }));
  ::kill(run, SIGKILL);
  ::waitpid(run, nullptr, 0);
  EXPECT_TRUE(wait_for([&] { return gone(pid("own")) && gone(pid("child")); }));
}

TEST_F(Processes, ThatEndTellWhatTheyWrote) {
  const auto never = [] { return false; };
  ServerProcess failing({"sh", "-c", "echo no such option: --kv; exit 3"});
  const std::string failure = failure_of([&] { failing.wait_until(never, kSeconds); });
  EXPECT_NE(failure.find("that it ended; it wrote: no such option: --kv"), std::string::npos) << failure;
  EXPECT_FALSE(failing.alive());
  ServerProcess absent({"/no/such/server"});
  EXPECT_NE(failure_of([&] { absent.wait_until(never, kSeconds); }).find("that it ended"), std::string::npos);
  ServerProcess silent({"sleep", "300"});
  EXPECT_NE(failure_of([&] { silent.wait_until(never, 0.2); }).find("no answer within 0.2 s"), std::string::npos);
}

// --- entries with a command

/// A server in Python that notes in a file when it begins and ends, and answers with its own setting.
constexpr const char* kServer = R"(
import http.server, json, signal, sys
port, setting, log = int(sys.argv[1]), sys.argv[2], sys.argv[3]
note = lambda word: print(word, setting, file=open(log, "a"), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer({"data": [{"id": "tiny"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"text": "answer of " + setting, "finish_reason": "stop"}
        self.answer({"model": "tiny", "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 9}})
    def log_message(self, *words):
        pass
def end(*_):
    note("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
note("begin")
server.serve_forever()
)";

class StartedServers : public ServedRun {
 protected:
  StartedServers() { write_file(folder_ / "server.py", kServer); }

  static int free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address {
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}
    };
    socklen_t size = sizeof(address);
    const bool bound = ::bind(socket, reinterpret_cast<struct sockaddr*>(&address), size) == 0 &&
                       ::getsockname(socket, reinterpret_cast<struct sockaddr*>(&address), &size) == 0;
    EXPECT_TRUE(bound);
    ::close(socket);
    return ntohs(address.sin_port);
  }
  [[nodiscard]] json method(const std::string& setting) const {
    return {
        {"name", "server"},
        {"label", setting},
        {"settings", {{"kv", setting}}},
        {"start",
         {"python3", (folder_ / "server.py").string(), "{port}", "{kv}", (folder_ / "log").string(), "{settings}"}}};
  }
  [[nodiscard]] std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder_ / "log").rdbuf();
    return text.str();
  }
  const std::string url_ = fmt::format("http://127.0.0.1:{}", free_port());
};

TEST_F(StartedServers, AreUpOneAfterTheOtherEachWithItsSettings) {
  const json more = {{"workloads",
                      {{{"name", "fact_qa"}, {"things", 1}, {"filler", 0}, {"samples", 2}},
                       {{"name", "needle"}, {"words", {50}}, {"depths", {50}}, {"limit", 1}}}}};
  const ExperimentConfig asked = config(model(url_, "openai"), {method("f16"), method("q8"), method("q4")}, more);
  EXPECT_EQ(run(asked).failed_cells, 0);
  // Asked for its version while the run is planned, and then for all its cells.
  const std::string planned = "begin f16\nend f16\nbegin q8\nend q8\nbegin q4\nend q4\n";
  EXPECT_EQ(log(), planned + planned);
  for (const char* setting : {"f16", "q8", "q4"}) {
    const auto found = samples(setting);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found.front().prediction, fmt::format("answer of {}", setting));
  }
  EXPECT_EQ(values("q8", "exact_match_full"), std::vector<double>(2, 0.0))
      << "beside the baseline, whose server is gone";
  EXPECT_EQ(values("f16", "exact_match_full"), std::vector<double>(2, 1.0));

  // A setting that is left needs the baseline's server again, and no other.
  std::filesystem::remove(folder_ / "log");
  json third = method("q3");
  (void)run(config(model(url_, "openai"), {method("f16"), method("q8"), third}, more));
  EXPECT_EQ(log(),
            "begin f16\nend f16\nbegin q8\nend q8\nbegin q3\nend q3\n"
            "begin f16\nend f16\nbegin q3\nend q3\nbegin f16\nend f16\nbegin q3\nend q3\n");
}

TEST_F(StartedServers, ThatDoNotStartFailBeforeAnythingRuns) {
  json wrong = method("q8");
  wrong["start"] = {"sh", "-c", "echo unknown type {kv}; exit 1"};
  const std::string failure = failure_of([&] { (void)run(config(model(url_, "openai"), {method("f16"), wrong})); });
  EXPECT_NE(failure.find("unknown type q8"), std::string::npos) << failure;
  EXPECT_EQ(log(), "begin f16\nend f16\n");
  wrong["start"] = {"server", "{cache}"};
  EXPECT_NE(failure_of([&] {
              (void)run(config(model(url_, "openai"), json::array({wrong})));
            }).find("found {cache}, expected"),
            std::string::npos);
  wrong["start"] = "llama-server";
  EXPECT_NE(failure_of([&] { (void)config(model(url_, "openai"), json::array({wrong})); }).find("methods[0].start"),
            std::string::npos);
}

TEST_F(StartedServers, DoNotTakeAnothersPlace) {
  ServerProcess other({"python3", (folder_ / "server.py").string(), url_.substr(url_.rfind(':') + 1), "other",
                       (folder_ / "log").string()});
  other.wait_until([&] { return log() == "begin other\n"; }, kSeconds);
  const std::string failure =
      failure_of([&] { (void)run(config(model(url_, "openai"), json::array({method("f16")}))); });
  EXPECT_NE(failure.find("another server at"), std::string::npos) << failure;
  EXPECT_TRUE(other.alive());
}

TEST(ServerStart, FillsInTheSettings) {
  const experiment::ModelEntry model{.path = "/models/m.gguf", .endpoint = "http://127.0.0.1:8080/v1"};
  const json settings = {
      {"endpoint", "http://localhost:8081"},
      {"settings", {{"cache-type-k", "q8_0"}, {"ctx-size", 2048}, {"mlock", true}, {"jinja", false}}},
      {"start", {"llama-server", "-m", "{model}", "--port", "{port}", "{settings}", "{ctx-size}x"}}};
  const ServerStart start = start_of(model, {.name = "server", .settings_json = settings.dump()}, "/home");
  EXPECT_EQ(start.words,
            (std::vector<std::string>{"llama-server", "-m", "/models/m.gguf", "--port", "8081", "--cache-type-k",
                                      "q8_0", "--ctx-size", "2048", "--mlock", "2048x"}));
  EXPECT_EQ(start.ready_s, 600);
}

}  // namespace
}  // namespace kvarena::evaluate
