#pragma once
#include <string>

#include "base/error.h"
#include "engine/request.h"

namespace bl {

// How an answer ends; a plain value.
struct Ending {
  FinishReason reason;
  ErrorCode code = ErrorCode::kInvalidArgument;  // with kError
  std::string error{};                           // with kError: one line
};

}  // namespace bl
