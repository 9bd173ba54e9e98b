#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace bl::test {

// The message of the error that `work` must throw, which has this code.
inline std::string error_of(const std::function<void()>& work, ErrorCode code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace bl::test
