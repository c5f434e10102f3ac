#include "harness/model/shared_model.h"

#include "harness/core/home.h"
#include "harness/model/open_model.h"
#include "harness/model/transformer_impl.h"

namespace kvarena {

std::shared_ptr<SharedModel> Transformer::helper(const std::string& name, const std::string& base) {
  const std::lock_guard lock(impl_->helping);
  std::shared_ptr<SharedModel>& held = impl_->helpers[{name, base}];
  if (held) return held;
  OpenedModel opened = open_model(find_model(name), base);
  auto model = std::make_shared<SharedModel>(Transformer(opened.config, *opened.checkpoint, impl_->options),
                                             std::move(opened.tokenizer));
  if (impl_->device) {
    model->transformer.offload_to(impl_->device->beside(opened.config, *opened.checkpoint, impl_->options));
  }
  held = std::move(model);
  return held;
}

}  // namespace kvarena
