#pragma once
// Checkpoints that help a target (drafters, speculative models): Transformer::helper().

#include <memory>
#include <mutex>

#include "harness/model/tokenizer/tokenizer.h"
#include "harness/model/transformer.h"

namespace kvarena {

struct SharedModel {
  Transformer transformer;
  std::unique_ptr<Tokenizer> tokenizer;
  std::mutex turn;  // held by whoever runs its passes, until their logits were read
};

}  // namespace kvarena
