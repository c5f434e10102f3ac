// The shared precompiled header of sources without ATen: JSON, formatting, and the standard headers that nearly every
// file beside them uses. Sources still include what they use, so that each compiles without it too.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cmake/json_instances.h"
