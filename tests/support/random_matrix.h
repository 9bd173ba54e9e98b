#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "format/weight_matrix.h"

namespace bl::test {

using Engine = std::mt19937;

// A run of `slots` slots of one width; EXL2 wants multiples of 32.
struct GroupShape {
  int bits = 4;
  std::int32_t slots = 32;
};

// Engine codes, scales and permutation; one in sixteen groups has a negative, a zero or a subnormal
// maximum.
Exl2Matrix random_exl2(const std::vector<GroupShape>& groups, std::int64_t out, Engine& random);

enum class GptqZeros { kConstant, kBytes, kWords };

// Engine codes. `group_size` channels a group, in sequence or (act-order) shuffled over the
// channels; kWords has zero points 0 and 2^bits.
struct GptqShape {
  int bits = 4;
  std::int64_t in = 128;
  std::int64_t out = 64;
  std::int64_t group_size = 64;
  bool act_order = false;
  GptqZeros zeros = GptqZeros::kBytes;
};
GptqMatrix random_gptq(const GptqShape& shape, Engine& random);
// Of 512 channels in 4 of 256 groups, as an act-order table may have them.
GptqMatrix random_gptq_with_empty_groups(Engine& random);

struct DenseShape {
  DType dtype = DType::kF16;
  std::int64_t in = 128;
  std::int64_t out = 64;
  bool transposed = false;
  bool odd_address = false;  // two bytes off its alignment, as a mapped file may have it
};
DenseMatrix random_dense(const DenseShape& shape, Engine& random);

std::vector<float> random_floats(std::size_t count, Engine& random);

}  // namespace bl::test
