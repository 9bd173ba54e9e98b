#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend/device.h"

namespace bl::test {

// Fixture for tests on the first card; skips, with a message, if there is none.
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

  // "wgmma_from": never, as on cards without the wgmma path; and from as few tokens as the card
  // can.
  void disable_wgmma() { device_->backend().choose_launch("wgmma_from", wgmma_choice().most); }
  void prefer_wgmma() { device_->backend().choose_launch("wgmma_from", wgmma_choice().least); }
  bool has_wgmma() const { return wgmma_choice().least < wgmma_choice().most; }

  std::unique_ptr<Device> device_;

 private:
  LaunchChoice wgmma_choice() const {
    for (const LaunchChoice& choice : device_->backend().launch_choices()) {
      if (choice.name == "wgmma_from") return choice;
    }
    return {};
  }
};

}  // namespace bl::test
