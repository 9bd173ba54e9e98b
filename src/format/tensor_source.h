#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/seeded_values.h"
#include "tensor/tensor_view.h"

namespace bl {

struct TensorInfo {
  DType dtype = DType::kF32;
  Shape shape;
  std::string file;  // the file it is in, for messages
};

// Bytes in host memory and what keeps them alive: a view into a mapped file, or a buffer of its
// own.
struct HostArray {
  TensorView view;  // read-only
  std::shared_ptr<const void> owner;
  // If set, the bytes at `view` are not there; the reader makes them from this seed
  // (read_seeded()).
  std::shared_ptr<const SeededValues> seeded = nullptr;
};

// The named tensors of a model, wherever they come from (safetensors folder, GGUF, memory).
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Returns nullptr if there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // The names of all tensors, sorted.
  virtual std::vector<std::string> names() const = 0;
  // Names that names() leaves out because the tensors cannot be read, though they belong to the
  // model. find() throws for them and says why.
  virtual std::vector<std::string> refused_names() const { return {}; }
  // The bytes of a tensor, without a copy where the file's layout allows it. Throws kNotFound.
  virtual HostArray read(std::string_view name) const = 0;
  // Like read(), for callers that can generate bytes from a seed: bulk weights of a random model
  // may come as a seed instead of bytes (HostArray::seeded).
  virtual HostArray read_seeded(std::string_view name) const { return read(name); }
  // Says that a tensor was repacked or copied, so that its pages need not stay resident.
  virtual void done_with(std::string_view name) const { static_cast<void>(name); }
};

// Wraps a source so that read() leaves bytes that a seed stands for to the reader.
class SeededSource : public TensorSource {
 public:
  // `base` must outlive this object.
  explicit SeededSource(const TensorSource& base) : base_(base) {}
  const TensorInfo* find(std::string_view name) const override { return base_.find(name); }
  std::vector<std::string> names() const override { return base_.names(); }
  std::vector<std::string> refused_names() const override { return base_.refused_names(); }
  HostArray read(std::string_view name) const override { return base_.read_seeded(name); }
  void done_with(std::string_view name) const override { base_.done_with(name); }

 private:
  const TensorSource& base_;
};

}  // namespace bl
