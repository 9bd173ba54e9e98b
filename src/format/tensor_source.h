#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor_view.h"

namespace bl {

struct TensorInfo {
  DType dtype = DType::kF32;
  Shape shape;
  std::string file;  // for messages
};

// Bytes on the host that somebody keeps alive: a view into a mapped file, or a buffer of its own.
struct HostArray {
  TensorView view;  // read-only
  std::shared_ptr<const void> owner;
};

// Named tensors of a model, wherever they come from (safetensors folder, GGUF, memory).
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // nullptr where there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // All names, sorted.
  virtual std::vector<std::string> names() const = 0;
  // The bytes; zero-copy where the file's layout allows. Throws kNotFound.
  virtual HostArray read(std::string_view name) const = 0;
  // The tensor was repacked or copied: its pages need not stay resident.
  virtual void done_with(std::string_view name) const { static_cast<void>(name); }
};

}  // namespace bl
