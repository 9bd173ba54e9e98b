#pragma once
#include "base/error.h"

namespace bl {

// In a handler of std::exception: what is being handled, as the answer to a request. Needs no
// memory.
Error caught_error() noexcept;

}  // namespace bl
