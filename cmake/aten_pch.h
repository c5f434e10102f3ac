// The shared precompiled header: ATen, and the standard headers that nearly every file beside it uses.
// Sources still include what they use, so that each compiles without it too.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
