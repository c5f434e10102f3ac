#pragma once
// All families, each defined in the file of its name.

#include "harness/model/architectures/architecture.h"

namespace kvarena {

extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;
extern const Architecture kGemma3;
extern const Architecture kDeepSeekV2;
extern const Architecture kDeepSeekV3;
extern const Architecture kMixtral;
extern const Architecture kGptOss;
extern const Architecture kPhi3;
extern const Architecture kGlm4;
extern const Architecture kGranite;
extern const Architecture kSmolLm3;
extern const Architecture kOlmo2;
extern const Architecture kLlama4;
extern const Architecture kQwen3Next;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;

}  // namespace kvarena
