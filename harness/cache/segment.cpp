#include "harness/cache/segment.h"

#include <cmath>

namespace kvarena {

const char* to_string(StorageForm form) {
  switch (form) {
    case StorageForm::dense: return "dense";
    case StorageForm::ragged: return "ragged";
    case StorageForm::indexed: return "indexed";
    case StorageForm::packed: return "packed";
  }
  return "";
}

float attention_scale(const LayerShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

}  // namespace kvarena
