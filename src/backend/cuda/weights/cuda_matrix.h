#pragma once
#include <memory>
#include <variant>
#include <vector>

#include "backend/cuda/layout/code_tables.h"
#include "backend/cuda/weights/weight_slabs.h"
#include "format/weight_matrix.h"
#include "ops/packed_matrix.h"

namespace bl::cuda {

// EXL2 or GPTQ codes on the card.
struct CodeWeights : CodeViews {
  std::shared_ptr<std::byte> memory;
  CodePackPlan plan;  // without its tables of features
  std::size_t bytes = 0;
  // The most bytes of a copy_block: of codes, and of scales including what 16-byte copies bring
  // along.
  std::uint32_t max_copy_block_bytes = 0;
  std::uint32_t max_copy_block_scale_bytes = 0;
  // Equal numbers mean equal tables. `permutation`: the order of features along K. `input_layout`:
  // the permutation, how K is divided into k_blocks, and the limb runs; matrices that read the same
  // input often agree on it. `k_tiling`: how an n_tile is divided into copy_blocks and k_blocks,
  // with format and zero point. `shape`: k_tiling and the number of n_tiles.
  std::uint64_t permutation = 0;
  std::uint64_t input_layout = 0;
  std::uint64_t k_tiling = 0;
  std::uint64_t shape = 0;
  bool is_identity = false;  // features are in their own order, without padding
};

// Describes a packed matrix whose memory, usually the card's, begins at `memory`. Host code.
CodeWeights describe_codes(CodePackPlan plan, const std::byte* memory);

// Rows [out, in] in the file's type.
struct DenseWeights {
  const void* rows = nullptr;
  DType type = DType::kF16;
  std::shared_ptr<std::byte> memory;
};

class CudaMatrix final : public PackedMatrix {
 public:
  using Weights = std::variant<CodeWeights, DenseWeights>;
  CudaMatrix(std::int64_t in, std::int64_t out, Weights weights)
      : PackedMatrix(in, out), weights_(std::move(weights)) {}
  std::size_t bytes() const override;
  const CodeWeights* codes() const { return std::get_if<CodeWeights>(&weights_); }
  const DenseWeights* dense() const { return std::get_if<DenseWeights>(&weights_); }

 private:
  Weights weights_;
};

inline const CudaMatrix& cuda_matrix(const PackedMatrix* matrix) {
  return *static_cast<const CudaMatrix*>(matrix);
}

inline bool is_exl2(const PackedMatrix* matrix) {
  const CodeWeights* codes = cuda_matrix(matrix).codes();
  return codes != nullptr && codes->view.kind == ScaleKind::kExl2;
}

}  // namespace bl::cuda
