#pragma once
#include <gtest/gtest.h>

#include "backend/registry.h"
#include "base/error.h"

namespace bl::test {

// Cases of the first card; skipped, aloud, where there is none.
class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    try {
      open_backend("cuda:0", {});
    } catch (const Error& error) {
      GTEST_SKIP() << "SKIPPED: " << error.what();
    }
  }
};

}  // namespace bl::test
