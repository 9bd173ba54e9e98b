#include "format/weight_matrix.h"

namespace bl {
namespace {

std::size_t bytes_of(const HostArray& array) {
  return array.view.empty()
             ? 0
             : static_cast<std::size_t>(array.view.shape.elements()) * size_of(array.view.dtype);
}

std::size_t code_bytes(const DenseMatrix& matrix) { return bytes_of(matrix.weight); }

std::size_t code_bytes(const Exl2Matrix& matrix) {
  return matrix.q_weight.size_bytes() + matrix.q_scale.size_bytes() +
         matrix.q_scale_max.size_bytes() + matrix.groups.size() * 4 + matrix.perm.size() * 4;
}

std::size_t code_bytes(const GptqMatrix& matrix) {
  const auto fields = static_cast<std::size_t>(matrix.groups * matrix.out);
  return matrix.qweight.size_bytes() + fields * static_cast<std::size_t>(matrix.bits) / 8 +
         matrix.scales.size() * 2 + matrix.group_of.size() * 4;
}

std::string_view name_of_format(const DenseMatrix& matrix) {
  switch (matrix.weight.view.dtype) {
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    default:
      return "fp32";
  }
}
std::string_view name_of_format(const Exl2Matrix&) { return "exl2"; }
std::string_view name_of_format(const GptqMatrix&) { return "gptq"; }

bool is_seeded(const DenseMatrix& matrix) { return matrix.weight.seeded != nullptr; }
bool is_seeded(const Exl2Matrix& matrix) { return matrix.seeded != nullptr; }
bool is_seeded(const GptqMatrix& matrix) { return matrix.seeded != nullptr; }

std::int64_t in_of(const DenseMatrix& matrix) { return matrix.in(); }
std::int64_t in_of(const Exl2Matrix& matrix) { return matrix.in; }
std::int64_t in_of(const GptqMatrix& matrix) { return matrix.in; }
std::int64_t out_of(const DenseMatrix& matrix) { return matrix.out(); }
std::int64_t out_of(const Exl2Matrix& matrix) { return matrix.out; }
std::int64_t out_of(const GptqMatrix& matrix) { return matrix.out; }

}  // namespace

std::int64_t in_features(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) { return in_of(m); }, matrix);
}
std::int64_t out_features(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) { return out_of(m); }, matrix);
}
const std::string& name_of(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) -> const std::string& { return m.name; }, matrix);
}
const HostArray& bias_of(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) -> const HostArray& { return m.bias; }, matrix);
}
std::string_view format_name(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) { return name_of_format(m); }, matrix);
}
bool has_seeded_codes(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) { return is_seeded(m); }, matrix);
}
std::size_t stored_bytes(const WeightMatrix& matrix) {
  return std::visit([](const auto& m) { return code_bytes(m) + bytes_of(m.bias); }, matrix);
}

}  // namespace bl
