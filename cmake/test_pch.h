// The shared precompiled header of the tests.
#pragma once

#include <gtest/gtest.h>

#include "cmake/json_pch.h"
