#pragma once
// The tensors of a quantized linear in files, whatever its format.

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/linear_rounder.h"
#include "format/safetensors_writer.h"
#include "format/tensor_source.h"

namespace bl {

struct PackedTensor {
  TensorPlan plan;
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};

// The tensors KEY.… of a matrix. A bias is not among them.
std::vector<PackedTensor> packed_tensors(const std::string& key, const QuantizedMatrix& matrix,
                                         const HostThreads& threads = HostThreads(nullptr));

// Bits that they take.
std::int64_t stored_bits(const QuantizedMatrix& matrix);

// "exl2", "gptq" or "gptq_v2": what a reader must know beside the tensors.
std::string format_tag(const QuantizedMatrix& matrix);

// A quantized linear as it is stored. Copies share the tensors.
struct PackedLinear {
  std::vector<PackedTensor> tensors;
  std::string format;            // its tag
  double bits_per_weight = 0.0;  // of all tensors
};
PackedLinear packed_linear(const std::string& key, const QuantizedMatrix& matrix,
                           const HostThreads& threads);

// Such tensors in memory, to load matrices from.
class PackedSource : public TensorSource {
 public:
  explicit PackedSource(std::vector<PackedTensor> tensors);
  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;

 private:
  struct Held {
    TensorInfo info;
    PackedTensor tensor;
  };
  std::map<std::string, Held, std::less<>> tensors_;
};

// The matrix as readers of its format have it, to compute with. It shares the tensors.
WeightMatrix weight_matrix(const std::string& key, const PackedLinear& linear);

// Reads the tensors of a linear back. An empty tag means EXL2. Throws kNotFound, and kInvalidFile
// for what is not of this format.
WeightMatrix load_packed(const TensorSource& source, const std::string& key,
                         const std::string& format);

}  // namespace bl
