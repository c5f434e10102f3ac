#include "harness/model/config.h"
#include "harness/model/gguf.h"
#include "harness/model/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

/// Metadata of every type, the model and the tokenizer that they describe, and the weights.
KVARENA_FUZZ(gguf, data) {
  using namespace kvarena;
  const fuzz::BytesFile bytes(data);
  const auto file = std::make_shared<const GgufFile>(bytes.path());
  for (const std::string& key : file->keys()) {
    fuzz::try_to([&] { (void)file->find_strings(key); });
    fuzz::try_to([&] { (void)file->find_ints(key); });
    fuzz::try_to([&] { (void)file->find_floats(key); });
    fuzz::try_to([&] { (void)file->find_string(key); });
    fuzz::try_to([&] { (void)file->find_float(key); });
  }
  fuzz::try_to([&] { (void)read_gguf_config(*file); });
  fuzz::try_to([&] {
    const auto tokenizer = load_gguf_tokenizer(*file);
    (void)tokenizer->decode(tokenizer->encode("Hello, w\xc3\xb6rld! 123 \n\t<s>"));
  });
  const auto checkpoint = open_gguf_checkpoint(file);
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    fuzz::try_to([&] { checkpoint->read_f32(tensor.name, values); });
  }
}
