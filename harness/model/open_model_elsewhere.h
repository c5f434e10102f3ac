#pragma once
// A model whose weights are elsewhere.

#include "harness/model/open_model.h"

namespace kvarena {

/// open_model() of a model that answers elsewhere: its folder needs no weights, and there may be no `checkpoint`.
[[nodiscard]] OpenedModel open_model_elsewhere(const std::filesystem::path& path);

}  // namespace kvarena
