// The precompiled header of plugins: ATen, and what the families of methods are derived from. Sources still include
// what they use, so that each compiles without it too.
#pragma once

#include <ATen/ATen.h>

#include "harness/method/codec.h"
#include "harness/method/retriever.h"
#include "harness/method/scorer.h"
#include "harness/method/verifier.h"
