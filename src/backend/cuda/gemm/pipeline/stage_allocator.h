#pragma once
// Where entries of any length lie in a ring of bytes: pure arithmetic, for the kernels and, with a
// test, for the host.

#include "base/host_device.h"

namespace bl::cuda {

// Entries leave in the order they came; none goes round the end: what is left there is counted with
// the entry that did not fit.
class StageAllocator {
 public:
  // Up to `most` entries in `bytes` bytes.
  BL_HD StageAllocator(int bytes, int most) : bytes_(bytes), most_(most) {}

  // An entry of at most the ring's bytes. An empty ring has room for any.
  BL_HD bool fits(int bytes) const {
    return data_ == 0 || (data_ < most_ && taken_ + taken_by(bytes) <= bytes_);
  }
  struct Allocation {
    int at = 0;
    int taken = 0;  // to be given back by release()
  };
  // fits(bytes) must hold.
  BL_HD Allocation allocate(int bytes) {
    if (data_ == 0) position_ = taken_ = 0;
    const Allocation allocate{wraps(bytes) ? 0 : position_, taken_by(bytes)};
    position_ = allocate.at + bytes;
    taken_ += allocate.taken;
    ++data_;
    return allocate;
  }
  // The oldest entry has gone.
  BL_HD void release(int taken) {
    taken_ -= taken;
    --data_;
  }

 private:
  BL_HD bool wraps(int bytes) const { return position_ + bytes > bytes_; }
  BL_HD int taken_by(int bytes) const { return wraps(bytes) ? bytes + bytes_ - position_ : bytes; }

  int bytes_;
  int most_;
  int position_ = 0;
  int taken_ = 0;
  int data_ = 0;
};

}  // namespace bl::cuda
