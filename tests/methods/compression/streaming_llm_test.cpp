// StreamingLLM: sinks and a sliding window by hand, and what kvpress keeps (tests/golden/dropping_methods.py).

#include <gtest/gtest.h>

#include "tests/methods/compression/kept_entries.h"
#include "tests/methods/compression/one_head.h"

namespace kvarena {
namespace {

using testing::OneHead;
using testing::rows;
using List = OneHead::List;

TEST(StreamingLlm, KeepsSinksAndAWindowThatSlides) {
  OneHead sinks(rows(10));
  EXPECT_EQ(sinks.compress({{"name", "streaming_llm"}, {"sinks", 2}, {"keep", 0.5}}), (List{0, 1, 7, 8, 9}));
  OneHead small(rows(5));
  EXPECT_EQ(small.compress({{"name", "streaming_llm"}, {"sinks", 2}, {"tokens", 5}}), (List{0, 1, 2, 3, 4}));
  small.append(rows(1));
  EXPECT_EQ(small.settle(), (List{0, 1, 3, 4, 5}));
}

TEST(StreamingLlm, KeepsWhatKvpressKeeps) { testing::expect_golden_entries("streaming_llm", 3); }

}  // namespace
}  // namespace kvarena
