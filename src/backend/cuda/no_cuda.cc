#include "backend/cuda/cuda_entry.h"
#include "base/error.h"

namespace bl {

bool built_with_cuda() { return false; }

int cuda_device_count() { return 0; }

std::unique_ptr<Backend> open_cuda(int device) {
  fail(ErrorCode::kUnsupported, "backend 'cuda:{}': this build has no CUDA", device);
}

}  // namespace bl
