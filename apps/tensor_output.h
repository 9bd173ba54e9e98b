#pragma once
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace bl {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Throws UsageError if `path` is empty, which means standard output, and that is a terminal. Call
// it before the work starts.
void check_output(const std::string& path);

// Writes one safetensors file, complete or not at all; an empty path means standard output.
void write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace bl
