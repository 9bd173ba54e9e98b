#pragma once
#include <memory>
#include <variant>
#include <vector>

#include "backend/cuda/weights/code_pack_plan.h"
#include "backend/cuda/weights/weight_slabs.h"
#include "format/weight_matrix.h"
#include "ops/packed_matrix.h"

namespace bl::cuda {

// EXL2 or GPTQ codes on the card.
struct CodeWeights {
  CodeMatrixView view;
  const std::int32_t* channel_of_slot = nullptr;  // device, [units · 32]
  // Device, [in] rounded up to 4: fragment_place of each channel's slot; null where 16 bits do not
  // hold it, or a channel has no slot.
  const std::uint16_t* place_of_channel = nullptr;
  // Of StripParts, and where their channels are: two or none.
  struct Part {
    CodeMatrixView view;
    const std::uint16_t* place_of_channel = nullptr;
  };
  std::vector<Part> parts;
  std::shared_ptr<std::byte> memory;
  CodePackPlan plan;  // without its tables of channels
  std::size_t bytes = 0;
  // The most that a piece takes: of codes, and of scales with what 16-byte copies bring along.
  std::uint32_t max_piece_bytes = 0;
  std::uint32_t max_piece_scale_bytes = 0;
  // Equal gathers into slots and chunks, and so equal runs, have equal numbers: matrices that read
  // the same input often agree on it.
  std::uint64_t gather = 0;
  // Equal places of channels have equal numbers, however the chunks are cut.
  std::uint64_t order = 0;
  bool in_order = false;  // every channel's slot is its own number, and there are no others
  // And equal cuts into strips, pieces and chunks have equal numbers.
  std::uint64_t shape = 0;
};

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

}  // namespace bl::cuda
