// Speed of loading vocabularies and of encoding, on one thread.
//
//   kvarena-tokenizer-bench --tokenizers FOLDER --text FILE [Google Benchmark's options]
//
// FOLDER holds a folder for each vocabulary with tokenizer.json or tokenizer.json.gz in it; FILE is the text to encode.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/core/files.h"
#include "harness/model/tokenizer/tokenizer.h"

namespace {

[[maybe_unused]] void encode(benchmark::State& state, const kvarena::Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
    tokens = ids.size();
    benchmark::DoNotOptimize(tokens);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

[[maybe_unused]] void decode(benchmark::State& state, const kvarena::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

[[maybe_unused]] void load(benchmark::State& state, const std::filesystem::path& file) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(kvarena::load_tokenizer(file));
}

/// The value after `flag`, which is taken out of the arguments.
std::string take_option(int& argc, char** argv, std::string_view flag) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] != flag) continue;
    std::string value = argv[i + 1];
    for (int j = i; j + 2 <= argc; ++j) argv[j] = argv[j + 2];
    argc -= 2;
    return value;
  }
  return {};
}

/// Everything must live until the benchmarks have run. Hidden from Clang's analyzer, which takes what the library
/// registers for lost.
void register_all([[maybe_unused]] const std::string& name, [[maybe_unused]] const kvarena::Tokenizer& tokenizer,
                  [[maybe_unused]] const std::string& text, [[maybe_unused]] const std::filesystem::path& file) {
#ifndef __clang_analyzer__
  benchmark::RegisterBenchmark(("encode/" + name).c_str(), [&](benchmark::State& state) {
    encode(state, tokenizer, text);
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("decode/" + name).c_str(), [&](benchmark::State& state) {
    decode(state, tokenizer, text);
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("load/" + name).c_str(), [file](benchmark::State& state) {
    load(state, file);
  })->Unit(benchmark::kMillisecond);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = take_option(argc, argv, "--tokenizers");
  const std::string text_file = take_option(argc, argv, "--text");
  if (folder.empty() || text_file.empty()) {
    std::fprintf(stderr, "usage: kvarena-tokenizer-bench --tokenizers FOLDER --text FILE [--benchmark_...]\n");
    return 1;
  }
  try {
    const std::string text = kvarena::read_file(text_file);
    std::vector<std::unique_ptr<kvarena::Tokenizer>> loaded;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::filesystem::path file = entry.path() / "tokenizer.json";
      if (!std::filesystem::exists(file)) file += ".gz";
      if (!std::filesystem::exists(file)) continue;
      const std::string name = entry.path().filename().string();
      loaded.push_back(kvarena::load_tokenizer(file));
      const kvarena::Tokenizer& tokenizer = *loaded.back();
      register_all(name, tokenizer, text, file);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
