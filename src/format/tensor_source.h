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
  std::string file;  // for messages
};

// Bytes on the host that somebody keeps alive: a view into a mapped file, or a buffer of its own.
struct HostArray {
  TensorView view;  // read-only
  std::shared_ptr<const void> owner;
  // Set: the bytes at `view` are not there, and these are what they should be (read_seeded()).
  std::shared_ptr<const SeededValues> seeded = nullptr;
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
  // The same for readers that make bytes themselves: those of bulk weights that a seed stands for
  // may not be there (HostArray::seeded).
  virtual HostArray read_seeded(std::string_view name) const { return read(name); }
  // The tensor was repacked or copied: its pages need not stay resident.
  virtual void done_with(std::string_view name) const { static_cast<void>(name); }
};

// Another source, of which bytes that a seed stands for are left to the reader.
class SeededSource : public TensorSource {
 public:
  // `base` outlives it.
  explicit SeededSource(const TensorSource& base) : base_(base) {}
  const TensorInfo* find(std::string_view name) const override { return base_.find(name); }
  std::vector<std::string> names() const override { return base_.names(); }
  HostArray read(std::string_view name) const override { return base_.read_seeded(name); }
  void done_with(std::string_view name) const override { base_.done_with(name); }

 private:
  const TensorSource& base_;
};

}  // namespace bl
