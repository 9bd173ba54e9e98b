#pragma once
// Where stages of any length lie in a ring of bytes: pure arithmetic for kernels; tested on the
// host.

#include "base/host_device.h"

namespace bl::cuda {

// Stages are released in the order in which they were allocated, and none wraps around the end:
// bytes left over there are counted as taken by the stage that did not fit.
class StageAllocator {
 public:
  // Up to `most` stages in `bytes` bytes.
  BL_HD StageAllocator(int bytes, int most) : bytes_(bytes), most_(most) {}

  // Whether a stage of `bytes` bytes, at most the ring's, has room. An empty ring takes any.
  BL_HD bool fits(int bytes) const {
    return count_ == 0 || (count_ < most_ && taken_ + taken_by(bytes) <= bytes_);
  }
  struct Allocation {
    int at = 0;
    int taken = 0;  // bytes to hand back to release()
  };
  // fits(bytes) must hold.
  BL_HD Allocation allocate(int bytes) {
    if (count_ == 0) position_ = taken_ = 0;
    const Allocation allocation{wraps(bytes) ? 0 : position_, taken_by(bytes)};
    position_ = allocation.at + bytes;
    taken_ += allocation.taken;
    ++count_;
    return allocation;
  }
  // Frees the oldest stage.
  BL_HD void release(int taken) {
    taken_ -= taken;
    --count_;
  }

 private:
  BL_HD bool wraps(int bytes) const { return position_ + bytes > bytes_; }
  BL_HD int taken_by(int bytes) const { return wraps(bytes) ? bytes + bytes_ - position_ : bytes; }

  int bytes_;
  int most_;
  int position_ = 0;
  int taken_ = 0;
  int count_ = 0;
};

}  // namespace bl::cuda
