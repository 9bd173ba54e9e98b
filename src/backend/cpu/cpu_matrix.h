#pragma once
#include <memory>
#include <variant>
#include <vector>

#include "backend/cpu/matmul_kernels.h"
#include "format/weight_matrix.h"
#include "ops/packed_matrix.h"
#include "tensor/tensor.h"

namespace bl::cpu {

// How activations are laid out for a quantized matrix: gathered into slots, and cut into segments
// that have one scale each. Matrices with the same input often have equal layouts (q, k and v; gate
// and up). Equal layouts are one object, so that a matmul quantizes its input once per layout.
struct ActivationLayout {
  std::vector<std::int32_t> gather;  // [slots]: channel of each slot; −1 for padding
  // [segments]: number of units of kUnitSlots, 1 … kMaxSegmentUnits.
  std::vector<std::int32_t> units;
  bool operator==(const ActivationLayout&) const = default;

  std::int64_t slots() const { return static_cast<std::int64_t>(gather.size()); }
  std::int64_t segments() const { return static_cast<std::int64_t>(units.size()); }
};

// The memory of a packed matrix: a part of a slab that several matrices own together, or a whole
// one.
class TileMemory {
 public:
  TileMemory() = default;
  TileMemory(std::shared_ptr<const Buffer> slab, std::size_t offset, std::size_t bytes)
      : slab_(std::move(slab)), offset_(offset), bytes_(bytes) {}
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(slab_->data()) + offset_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Buffer> slab_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
};

// An EXL2 or GPTQ matrix, packed as QuantizedView describes.
struct QuantizedWeights {
  std::shared_ptr<const ActivationLayout> layout;
  TileMemory tiles;
  std::vector<Band> bands;
  std::vector<float> tables;  // [segments][16], kCodes only
  ScaleKind scale_kind = ScaleKind::kCodes;
  std::int32_t zero = 0;
  std::size_t tile_bytes = 0;
  std::size_t codes_offset = 0;

  QuantizedView view() const;
};

// A dense matrix: its rows in the mapped file, or a copy if the file's layout is different.
struct DenseWeights {
  const std::byte* rows = nullptr;  // [out, in]
  DenseType type = DenseType::kFloat;
  Buffer copy;
  std::shared_ptr<const void> owner;
};

class CpuMatrix : public PackedMatrix {
 public:
  using Weights = std::variant<QuantizedWeights, DenseWeights>;
  CpuMatrix(std::int64_t in, std::int64_t out, Weights weights)
      : PackedMatrix(in, out), weights_(std::move(weights)) {}
  std::size_t bytes() const override;
  const Weights& weights() const { return weights_; }
  const QuantizedWeights* quantized() const { return std::get_if<QuantizedWeights>(&weights_); }
  const DenseWeights* dense() const { return std::get_if<DenseWeights>(&weights_); }
  DenseView dense_view() const;

 private:
  Weights weights_;
};

}  // namespace bl::cpu
