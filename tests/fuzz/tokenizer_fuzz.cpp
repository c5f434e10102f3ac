#include "harness/model/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

/// A tokenizer.json, which then reads a text with a bit of everything.
KVARENA_FUZZ(tokenizer, data) {
  const kvarena::fuzz::BytesFile file(data);
  const auto tokenizer = kvarena::load_tokenizer(file.path());
  const std::vector<int32_t> ids =
      tokenizer->encode("Hello, w\xc3\xb6rld! 123 \n\t<s>it's aaaaaaaaaaaaaaaa\xe4\xbd\xa0");
  (void)tokenizer->decode(ids);
  kvarena::Detokenizer stream(*tokenizer);
  for (const int32_t id : ids) (void)stream.push(id);
  (void)stream.finish();
}
