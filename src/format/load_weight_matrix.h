#pragma once
// Loads the weights of one linear by module key, whatever format its tensors are in.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/gptq_config.h"
#include "format/weight_matrix.h"

namespace bl {

// Whether a bias is optional, must be there, or must not be there.
enum class BiasRule { kIfPresent, kRequired, kNone };

// What the architecture knows about a linear before its tensors are read.
struct LoadHints {
  std::int64_t in = 0;      // input channels; 0 accepts any number
  std::int64_t out = 0;     // output columns; 0 accepts any number. EXL2 may add up to 31
  bool more_out = false;    // any number of further columns is accepted (a padded head)
  bool transposed = false;  // a dense tensor is stored as [in, out]
  BiasRule bias = BiasRule::kIfPresent;
  const GptqConfig* gptq = nullptr;  // may be null
};

// Loads EXL2 if KEY.q_weight exists, else GPTQ if KEY.qweight exists, else a dense KEY.weight; and
// KEY.bias with any of them. An all-zero bias of a GPTQ linear that should have none is dropped,
// since some writers emit one for every linear. Throws kNotFound naming the keys that were tried,
// and kInvalidFile or kUnsupported for tensors that break their format or do not fit the hints.
WeightMatrix load_weight_matrix(const TensorSource& source, const std::string& key,
                                const LoadHints& hints);

// Whether tensors of one of the three forms are there.
bool has_weight_matrix(const TensorSource& source, const std::string& key);

// Loads a dense matrix, [out, in], from a tensor of any name, such as a tied embedding. Throws as
// load_weight_matrix() does.
DenseMatrix load_dense_matrix(const TensorSource& source, const std::string& tensor,
                              const LoadHints& hints);

// Experts that are stacked in one dense tensor: [experts, out, in], or [experts, in, out] if
// transposed, or either of these flattened to two dimensions. `hints` describes one expert and must
// give `in` and `out`.
struct StackedExperts {
  std::string tensor;
  std::string bias = {};  // tensor [experts, out], or empty
  std::int64_t experts = 0;
  LoadHints hints = {};
};
// The experts of a stack, as views into its tensors. Throws kNotFound and kInvalidFile.
std::vector<DenseMatrix> load_stacked_experts(const TensorSource& source,
                                              const StackedExperts& stack);

}  // namespace bl
