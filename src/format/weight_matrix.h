#pragma once
// The weights of a linear as the file holds them. The format is a value, never a flag: backends
// pack each alternative into the layout that their kernels like, straight from the codes.
//
// Every alternative means the same product: y[c] = Σ_i x[i] · W[i][c] + bias[c], with `in` input
// channels i and `out` stored output columns c.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "format/tensor_source.h"

namespace bl {

// Weights in F32, F16 or BF16.
struct DenseMatrix {
  std::string name;
  HostArray weight;  // [out, in]; [in, out] if transposed (Conv1D of old models, some experts)
  bool transposed = false;
  HostArray bias;  // [out] of any float dtype, or empty
  std::int64_t in() const { return weight.view.shape[transposed ? 0 : 1]; }
  std::int64_t out() const { return weight.view.shape[transposed ? 1 : 0]; }
};

// EXL2 (docs/formats/exl2.md §6–10). Once an object exists, all checks of §12 have passed.
struct Exl2Matrix {
  // A run of slots that share a bit width and a row of scales.
  struct Group {
    int bits = 0;                 // 2, 3, 4, 5, 6 or 8
    std::int32_t first_word = 0;  // index of its first word row in q_weight
    std::int32_t first_slot = 0;
    std::int32_t slots = 0;  // a multiple of 32
  };
  std::string name;
  std::int64_t in = 0;
  std::int64_t out = 0;  // stored columns, padding included; a multiple of 32
  std::vector<Group> groups;
  std::span<const std::uint32_t> q_weight;     // [word rows, out]
  std::span<const std::uint32_t> q_scale;      // [groups, out / 8] of 4-bit codes
  std::span<const std::uint16_t> q_scale_max;  // [groups] of binary16 bits
  std::vector<std::int32_t> perm;              // [in]: perm[slot] = channel
  HostArray bias;                              // [out], or empty
  std::shared_ptr<const void> owner;           // keeps the spans alive
  std::shared_ptr<const SeededValues> seeded;  // as HostArray::seeded, for q_weight
};

// GPTQ (docs/formats/gptq.md §3–7) with 2, 3, 4 or 8 bits. Zero points are already decided (v1, v2
// and the special case of §5.3), so that no reader has to know the file's version. in · bits is a
// multiple of 32; all groups have the same size, except that the last may be smaller; scales are
// finite; every group_of is in range and, without act-order, i / size. In a part that
// select_inputs() made, groups may have any size.
struct GptqMatrix {
  std::string name;
  int bits = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t groups = 0;
  std::span<const std::uint32_t> qweight;  // [in · bits / 32, out], channels in original order
  std::vector<std::uint16_t> zeros;        // [groups, out]: z in W = (q − z)·s, from 0 to 2^bits
  std::vector<std::uint16_t> scales;       // [groups, out] of binary16 bits
  std::vector<std::int32_t> group_of;      // [in]: the group of each channel
  HostArray bias;                          // [out], or empty
  std::shared_ptr<const void> owner;       // keeps qweight alive
  std::shared_ptr<const SeededValues> seeded;  // as HostArray::seeded, for qweight
};

using WeightMatrix = std::variant<DenseMatrix, Exl2Matrix, GptqMatrix>;

std::int64_t in_features(const WeightMatrix& matrix);
std::int64_t out_features(const WeightMatrix& matrix);  // stored columns, padding included
const std::string& name_of(const WeightMatrix& matrix);
const HostArray& bias_of(const WeightMatrix& matrix);
std::string_view format_name(const WeightMatrix& matrix);  // "fp16", "bf16", "fp32", "exl2", "gptq"
// Whether a seed stands for the codes, which are not in memory (HostArray::seeded).
bool has_seeded_codes(const WeightMatrix& matrix);
// The bytes that the weights take in the file: codes, scales, permutation and bias.
std::size_t stored_bytes(const WeightMatrix& matrix);

}  // namespace bl
