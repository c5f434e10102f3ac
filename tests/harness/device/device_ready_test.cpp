// Contexts that lie ready on a device (emulated here): their copy goes up once and stays.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/engine/model_facts.h"
#include "harness/engine/stored/ready_cache.h"
#include "harness/method/registry.h"
#include "tests/support/offloaded_model.h"

namespace kvarena::device {
namespace {

using testing::tiny_prompt;

TEST(DeviceReady, ItsCopyStaysAndThoseOfBeginningsAreMadeOfIt) {
  Offloaded offloaded;
  Transformer& model = offloaded.model();
  Transformer host = testing::tiny_model(1, kF32);
  const DeviceMirrors& mirrors = offloaded.device().mirrors();
  const auto facts = model_facts(model);
  const std::vector<int32_t> context = tiny_prompt(600), question = tiny_prompt(7, 3);
  const auto snapkv = make_method({{"name", "snapkv"}, {"keep", 0.5}}, "test");
  for (const Method* method : {static_cast<const Method*>(nullptr), static_cast<const Method*>(snapkv.get())}) {
    SCOPED_TRACE(method == nullptr ? "uncompressed" : "snapkv");
    const Prefill prompt = prefill(model, context, method == nullptr ? Needs{} : method->needs(), kPrefillChunk, facts);
    const std::vector<std::byte> bytes = store_cache(prompt, method, /*divided=*/true);
    const stored::ReadyCache ready(model, *facts, method, bytes);
    KvCache restored = restore_cache(host, *facts, method, bytes);
    const std::vector<float> want = fed(host, restored, question);
    const int64_t uploads = mirrors.uploads(), copies = mirrors.copies();
    std::vector<float> first;
    for (int i = 0; i < 3; ++i) {
      KvCache begun = ready.begin(model);
      const std::vector<float> got = fed(model, begun, question);
      EXPECT_LT(testing::relative_error(got, want), 1e-4);
      if (i == 0) first = got;
      EXPECT_EQ(got, first);
    }
    EXPECT_EQ(mirrors.uploads() - uploads, method == nullptr ? 1 : 3) << "once for all that keep every token";
    EXPECT_EQ(mirrors.copies() - copies, method == nullptr ? 3 : 0);
    EXPECT_EQ(ready.stored(), bytes) << "and goes down as it came";
  }
}

}  // namespace
}  // namespace kvarena::device
