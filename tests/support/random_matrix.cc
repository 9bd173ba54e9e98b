#include "support/random_matrix.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "tensor/float16.h"

namespace bl::test {
namespace {

// What the spans of a matrix point to.
struct Exl2Bytes {
  std::vector<std::uint32_t> weight;
  std::vector<std::uint32_t> scale;
  std::vector<std::uint16_t> scale_max;
};

std::uint16_t random_maximum(Engine& random) {
  switch (random() % 48) {
    case 0:
      return 0;
    case 1:
      return 0x0003;
    case 2:
      return float_to_half(-0.02f);
    default:
      return float_to_half(std::uniform_real_distribution<float>(0.005f, 0.08f)(random));
  }
}

std::vector<std::int32_t> shuffled(std::int64_t count, Engine& random) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

Exl2Matrix random_exl2(const std::vector<GroupShape>& groups, std::int64_t out, Engine& random) {
  auto bytes = std::make_shared<Exl2Bytes>();
  Exl2Matrix matrix;
  matrix.name = "random";
  matrix.out = out;
  std::int32_t words = 0;
  for (const GroupShape& group : groups) {
    matrix.groups.push_back({group.bits, words, static_cast<std::int32_t>(matrix.in), group.slots});
    words += group.slots / 32 * group.bits;
    matrix.in += group.slots;
    bytes->scale_max.push_back(random_maximum(random));
  }
  bytes->weight.resize(static_cast<std::size_t>(words * out));
  bytes->scale.resize(groups.size() * static_cast<std::size_t>(out / 8));
  for (auto& word : bytes->weight) word = static_cast<std::uint32_t>(random());
  for (auto& word : bytes->scale) word = static_cast<std::uint32_t>(random());
  matrix.q_weight = bytes->weight;
  matrix.q_scale = bytes->scale;
  matrix.q_scale_max = bytes->scale_max;
  matrix.perm = shuffled(matrix.in, random);
  matrix.owner = bytes;
  return matrix;
}

GptqMatrix random_gptq(const GptqShape& shape, Engine& random) {
  GptqMatrix matrix;
  matrix.name = "random";
  matrix.bits = shape.bits;
  matrix.in = shape.in;
  matrix.out = shape.out;
  matrix.groups = (shape.in + shape.group_size - 1) / shape.group_size;
  auto words = std::make_shared<std::vector<std::uint32_t>>(
      static_cast<std::size_t>((shape.in * shape.bits + 31) / 32 * shape.out));
  for (auto& word : *words) word = static_cast<std::uint32_t>(random());
  matrix.qweight = *words;
  matrix.owner = words;
  const auto fields = static_cast<std::size_t>(matrix.groups * shape.out);
  const auto top = static_cast<std::uint16_t>(1 << shape.bits);
  for (std::size_t i = 0; i < fields; ++i) {
    matrix.scales.push_back(
        float_to_half(std::uniform_real_distribution<float>(-0.01f, 0.02f)(random)));
    switch (shape.zeros) {
      case GptqZeros::kConstant:
        matrix.zeros.push_back(static_cast<std::uint16_t>(top / 2));
        break;
      case GptqZeros::kBytes:
        matrix.zeros.push_back(static_cast<std::uint16_t>(1 + random() % top));
        break;
      case GptqZeros::kWords:
        matrix.zeros.push_back(static_cast<std::uint16_t>(random() % 2 == 0 ? 0 : top));
        break;
    }
  }
  const std::vector<std::int32_t> order = shuffled(shape.in, random);
  matrix.group_of.resize(static_cast<std::size_t>(shape.in));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t channel = shape.act_order ? static_cast<std::size_t>(order[i]) : i;
    matrix.group_of[channel] =
        static_cast<std::int32_t>(static_cast<std::int64_t>(i) / shape.group_size);
  }
  return matrix;
}

GptqMatrix random_gptq_with_empty_groups(Engine& random) {
  GptqMatrix matrix = random_gptq({4, 512, 32, 2, false, GptqZeros::kBytes}, random);
  for (std::size_t i = 0; i < matrix.group_of.size(); ++i) {
    matrix.group_of[i] = i < 64 ? 0 : i < 128 ? 20 : i < 256 ? 100 : 255;
  }
  return matrix;
}

DenseMatrix random_dense(const DenseShape& shape, Engine& random) {
  DenseMatrix matrix;
  matrix.name = "random";
  matrix.transposed = shape.transposed;
  const auto count = static_cast<std::size_t>(shape.in * shape.out);
  const std::size_t size = size_of(shape.dtype);
  const std::size_t shift = shape.odd_address ? 2 : 0;
  auto bytes = std::make_shared<std::vector<std::byte>>(count * size + shift);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = std::normal_distribution<float>(0.0f, 0.05f)(random);
    std::byte* to = bytes->data() + shift + i * size;
    if (shape.dtype == DType::kF32) {
      std::memcpy(to, &value, 4);
    } else {
      const std::uint16_t bits =
          shape.dtype == DType::kF16 ? float_to_half(value) : BFloat16(value).bits;
      std::memcpy(to, &bits, 2);
    }
  }
  const Shape stored = shape.transposed ? Shape{shape.in, shape.out} : Shape{shape.out, shape.in};
  matrix.weight.view = view_of(bytes->data() + shift, shape.dtype, stored);
  matrix.weight.owner = bytes;
  return matrix;
}

std::vector<float> random_floats(std::size_t count, Engine& random) {
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>(0.0f, 1.0f)(random);
  // Outliers, as hidden states of real models have them.
  for (std::size_t i = 7; i < count; i += 97) values[i] *= 60.0f;
  return values;
}

}  // namespace bl::test
