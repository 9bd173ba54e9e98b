#pragma once
// The tensors of a quantized linear in files, whatever its format.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convert/linear_rounder.h"
#include "format/safetensors_writer.h"
#include "format/tensor_source.h"

namespace bl {

struct PackedTensor {
  TensorPlan plan;
  std::vector<std::byte> bytes;
};

// The tensors KEY.… of a matrix. A bias is not among them.
std::vector<PackedTensor> packed_tensors(const std::string& key, const QuantizedMatrix& matrix);

// Bits that they take.
std::int64_t stored_bits(const QuantizedMatrix& matrix);

// "exl2", "gptq" or "gptq_v2": what a reader must know beside the tensors.
std::string format_tag(const QuantizedMatrix& matrix);

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
    std::shared_ptr<PackedTensor> tensor;
  };
  std::map<std::string, Held, std::less<>> tensors_;
};

// The matrix as readers of its format have it, to compute with. Shares nothing with `matrix`.
WeightMatrix weight_matrix(const std::string& key, const QuantizedMatrix& matrix);

// Reads the tensors of a linear back. An empty tag means EXL2. Throws kNotFound, and kInvalidFile
// for what is not of this format.
WeightMatrix load_packed(const TensorSource& source, const std::string& key,
                         const std::string& format);

}  // namespace bl
