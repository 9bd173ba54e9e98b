#pragma once
// A card that acts as one of an earlier compute capability, so that the code for cards that nobody
// here has can be tested and measured: BITLOOM_CUDA_CAPABILITY=80, 86 or 89 with a build of preset
// cuda-stand-in. Plans, routes and limits are those of that capability. How many CTAs share a
// multiprocessor is enforced by padding the shared memory that every kernel asks for. Clock, number
// of multiprocessors and memory speed stay the card's own. For tests only.

#include <cstddef>

#include "backend/cuda/device/device_facts.h"

namespace bl::cuda {

// The variable's capability, from its text. Throws kInvalidArgument unless it is 80, 86 or 89.
int parse_stand_in(const char* text);

// Checks that kernels compiled for `code_capability` may run on the card `facts` describes, as
// capability `as` (0: the card's own), and makes its facts those of that capability. Throws
// kUnsupported where the build is not one for that.
void act_as(DeviceFacts& facts, int as, int code_capability);

// What limits how many CTAs of a kernel share a multiprocessor.
struct CtaDemand {
  int threads = 0;
  std::size_t static_shared_bytes = 0;
  std::size_t dynamic_shared_bytes = 0;
};

// Returns how many CTAs the stand-in's capability would have room for, and the dynamic shared
// memory with which the card has room for no more than so many.
int ctas_as(const DeviceFacts& facts, const CtaDemand& demand);
std::size_t padded_shared_bytes(const DeviceFacts& facts, const CtaDemand& demand);

// Returns padded_shared_bytes() for a kernel, which is opted in to them. Needs a card.
std::size_t pad_for_stand_in(const DeviceFacts& facts, const void* kernel, int threads,
                             std::size_t dynamic_shared_bytes);

// The compute capability that the build's kernels were compiled for: __CUDA_ARCH__ / 10 as they saw
// it on the current card. Needs a card.
int code_capability();

}  // namespace bl::cuda
