#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/interrupt.h"
#include "base/progress.h"

namespace bl {

// ConversionJob::progress on the terminal: a bar for each phase. An interrupt ends the conversion.
class PhaseProgress {
 public:
  void operator()(const std::string& phase, std::int64_t done, std::int64_t total) {
    check_interrupt();
    if (phase != phase_) {
      bar_.reset();
      bar_ = std::make_unique<Progress>(phase, total, Progress::Unit::kItems);
      phase_ = phase;
    }
    bar_->update(done);
  }

 private:
  std::string phase_;
  std::unique_ptr<Progress> bar_;
};

}  // namespace bl
