#include "harness/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

KVARENA_FUZZ(safetensors, data) {
  using namespace kvarena;
  const fuzz::BytesFile file(data);
  fuzz::try_to([&] { (void)safetensors_metadata(file.path()); });
  fuzz::try_to([&] { (void)open_sharded_safetensors(file.path()); });
  const auto checkpoint = open_safetensors(file.path());
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    (void)checkpoint->raw(tensor.name);
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    fuzz::try_to([&] { checkpoint->read_f32(tensor.name, values); });
  }
}
