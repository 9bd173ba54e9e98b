#include "format/load_weight_matrix.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "format/exl2.h"
#include "format/gptq.h"
#include "format/tensor_check.h"

namespace bl {
namespace {

constexpr std::int64_t kExl2Padding = 31;

const std::initializer_list<DType>& float_dtypes() {
  static const std::initializer_list<DType> kDTypes = {DType::kF32, DType::kF16, DType::kBF16};
  return kDTypes;
}

void check_fit(const WeightMatrix& matrix, const LoadHints& hints) {
  const std::int64_t in = in_features(matrix), out = out_features(matrix);
  if (hints.in != 0 && in != hints.in) {
    fail(ErrorCode::kInvalidFile,
         "linear {} ({}): its tensors have {} input channels, but the configuration says {}",
         quoted_name(name_of(matrix)), format_name(matrix), in, hints.in);
  }
  const std::int64_t spare = hints.more_out                               ? out
                             : std::holds_alternative<Exl2Matrix>(matrix) ? kExl2Padding
                                                                          : 0;
  if (hints.out != 0 && (out < hints.out || out - hints.out > spare)) {
    fail(ErrorCode::kInvalidFile,
         "linear {} ({}): its tensors have {} output columns, but the configuration says {}",
         quoted_name(name_of(matrix)), format_name(matrix), out, hints.out);
  }
}

bool is_all_zero(const HostArray& array) {
  const auto* bytes = array.view.as<const unsigned char>();
  const std::size_t size =
      static_cast<std::size_t>(array.view.shape.elements()) * size_of(array.view.dtype);
  return std::all_of(bytes, bytes + size, [](unsigned char byte) { return byte == 0; });
}

HostArray load_bias(const TensorSource& source, const WeightMatrix& matrix, BiasRule rule) {
  const std::string name = name_of(matrix) + ".bias";
  if (source.find(name) == nullptr) {
    if (rule == BiasRule::kRequired) {
      fail(ErrorCode::kNotFound, "there is no tensor {}, but this architecture has a bias there",
           quoted_name(name));
    }
    return {};
  }
  const NamedArray bias(source, name, float_dtypes(), 1);
  const std::int64_t out = out_features(matrix);
  if (bias.size(0) != out)
    bias.reject("it holds {} values; there must be {}, one for each column", bias.size(0), out);
  if (rule == BiasRule::kNone) {
    if (std::holds_alternative<GptqMatrix>(matrix) && is_all_zero(bias.array())) return {};
    bias.reject("this architecture has no bias there");
  }
  return bias.array();
}

void check_dense(const NamedArray& weight) {
  if (weight.size(0) < 1 || weight.size(1) < 1) {
    weight.reject("its shape {} has no elements", weight.shape());
  }
}

// Names the format if tensors of one that is not supported are there, so that the weights are not
// reported as missing.
void refuse_other_formats(const TensorSource& source, const std::string& key) {
  struct Tell {
    const char* suffix;
    const char* format;
  };
  constexpr Tell kTells[] = {{".weight_packed", "compressed-tensors"},
                             {".trellis", "EXL3"},
                             {".B", "Marlin"},
                             {".W_q", "HQQ"},
                             {".codes", "AQLM"},
                             {"_blocks", "MXFP4"}};
  for (const Tell& tell : kTells) {
    const std::string name = key + tell.suffix;
    if (source.find(name) == nullptr) continue;
    fail(ErrorCode::kUnsupported,
         "linear {}: tensor {} belongs to {}, which is not supported (EXL2, GPTQ, F32, F16 and "
         "BF16 are)",
         quoted_name(key), quoted_name(name), tell.format);
  }
}

WeightMatrix load_codes(const TensorSource& source, const std::string& key,
                        const LoadHints& hints) {
  if (source.find(key + ".q_weight") != nullptr) return load_exl2_matrix(source, key);
  if (source.find(key + ".qweight") != nullptr) return load_gptq_matrix(source, key, hints.gptq);
  if (source.find(key + ".weight") == nullptr) {
    refuse_other_formats(source, key);
    fail(ErrorCode::kNotFound,
         "there are no weights for linear {}: none of .weight, .q_weight and .qweight exists",
         quoted_name(key));
  }
  const NamedArray weight(source, key + ".weight", float_dtypes(), 2);
  check_dense(weight);
  return DenseMatrix{key, weight.array(), hints.transposed, {}};
}

}  // namespace

WeightMatrix load_weight_matrix(const TensorSource& source, const std::string& key,
                                const LoadHints& hints) {
  WeightMatrix matrix = load_codes(source, key, hints);
  check_fit(matrix, hints);
  HostArray bias = load_bias(source, matrix, hints.bias);
  std::visit([&](auto& m) { m.bias = std::move(bias); }, matrix);
  return matrix;
}

bool has_weight_matrix(const TensorSource& source, const std::string& key) {
  return source.find(key + ".q_weight") != nullptr || source.find(key + ".qweight") != nullptr ||
         source.find(key + ".weight") != nullptr;
}

DenseMatrix load_dense_matrix(const TensorSource& source, const std::string& tensor,
                              const LoadHints& hints) {
  const NamedArray weight(source, tensor, float_dtypes(), 2);
  check_dense(weight);
  DenseMatrix matrix{tensor, weight.array(), hints.transposed, {}};
  check_fit(matrix, hints);
  return matrix;
}

std::vector<DenseMatrix> load_stacked_experts(const TensorSource& source,
                                              const StackedExperts& stack) {
  const LoadHints& hints = stack.hints;
  BL_CHECK(stack.experts > 0 && hints.in > 0 && hints.out > 0);
  const std::int64_t rows = hints.transposed ? hints.in : hints.out;
  const std::int64_t columns = hints.transposed ? hints.out : hints.in;
  const TensorInfo* info = source.find(stack.tensor);
  if (info == nullptr)
    fail(ErrorCode::kNotFound, "there is no tensor {}", quoted_name(stack.tensor));
  const NamedArray weight(source, stack.tensor, float_dtypes(), info->shape.rank() == 2 ? 2 : 3);
  const Shape stacked{stack.experts, rows, columns};
  const Shape flat{stack.experts * rows, columns};
  if (!(info->shape == stacked) && !(info->shape == flat)) {
    weight.reject("its shape is {}; it must be {} or {}", weight.shape(), stacked.to_string(),
                  flat.to_string());
  }
  std::optional<NamedArray> bias;
  if (!stack.bias.empty()) {
    bias.emplace(source, stack.bias, float_dtypes(), 2);
    if (bias->size(0) != stack.experts || bias->size(1) != hints.out) {
      bias->reject("its shape is {}; it must be [{}, {}]", bias->shape(), stack.experts, hints.out);
    }
  }
  std::vector<DenseMatrix> experts(static_cast<std::size_t>(stack.experts));
  for (std::int64_t e = 0; e < stack.experts; ++e) {
    DenseMatrix& expert = experts[static_cast<std::size_t>(e)];
    const auto part = [e](const NamedArray& whole, Shape shape) {
      auto* data = whole.array().view.as<std::byte>() +
                   static_cast<std::size_t>(e * shape.elements()) * size_of(whole.dtype());
      return HostArray{view_of(data, whole.dtype(), shape), whole.array().owner};
    };
    expert.name = fmt::format("{}.{}", stack.tensor, e);
    expert.transposed = hints.transposed;
    expert.weight = part(weight, {rows, columns});
    if (bias) expert.bias = part(*bias, {hints.out});
  }
  return experts;
}

}  // namespace bl
