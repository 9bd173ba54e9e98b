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

  // "wgmma_from": products of many tokens with codes expanded in memory, as on cards that decode
  // none in registers; and with codes decoded from as few tokens on as the card can.
  void decode_none() { device_->backend().choose_launch("wgmma_from", decoding().most); }
  void decode_many() { device_->backend().choose_launch("wgmma_from", decoding().least); }
  bool decodes() const { return decoding().least < decoding().most; }

  std::unique_ptr<Device> device_;

 private:
  LaunchChoice decoding() const {
    for (const LaunchChoice& choice : device_->backend().launch_choices()) {
      if (choice.name == "wgmma_from") return choice;
    }
    return {};
  }
};

}  // namespace bl::test
