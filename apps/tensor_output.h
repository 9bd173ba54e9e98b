#pragma once
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace bl {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// UsageError when `path` is empty, meaning standard output, and that is a terminal. To be called
// before the work starts.
void check_output(const std::string& path);

// One safetensors file, complete or not at all; to standard output for an empty path.
void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace bl
