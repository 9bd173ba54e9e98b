#pragma once
#include "base/error.h"

namespace bl {

// Call in a handler of std::exception: returns the exception as the error that ends a request.
// Works without free memory.
Error caught_error() noexcept;

}  // namespace bl
