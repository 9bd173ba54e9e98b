#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"

namespace bl::test {

// Cases of the first card; skipped, aloud, where there is none.
class OnCudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    const std::string cuda = "cuda:0";
    const std::vector<std::string> names = runnable_backends();
    if (std::find(names.begin(), names.end(), cuda) == names.end()) {
      GTEST_SKIP() << "no CUDA device that this build can open";
    }
    device_ = std::make_unique<Device>(cuda);
  }

  std::unique_ptr<Device> device_;
};

}  // namespace bl::test
