#pragma once
// Weights of one linear by module key, whatever format its tensors are in.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/gptq_config.h"
#include "format/weight_matrix.h"

namespace bl {

enum class BiasRule { kIfPresent, kRequired, kNone };

// What the architecture knows about a linear before its tensors are read.
struct LoadHints {
  std::int64_t in = 0;      // expected input channels; 0: whatever is there
  std::int64_t out = 0;     // expected outputs; 0: whatever is there. EXL2 may hold up to 31 more
  bool more_out = false;    // any number of further outputs is fine (the head, padded)
  bool transposed = false;  // a dense tensor is stored [in, out]
  BiasRule bias = BiasRule::kIfPresent;
  const GptqConfig* gptq = nullptr;
};

// KEY.q_weight → EXL2, else KEY.qweight → GPTQ, else KEY.weight → dense; KEY.bias with any of them.
// An all-zero bias of a GPTQ linear that should have none is dropped (some writers emit one for
// every linear). Throws kNotFound naming the keys that were tried, kInvalidFile / kUnsupported for
// tensors that break their format or do not fit the hints.
WeightMatrix load_weight_matrix(const TensorSource& source, const std::string& key,
                                const LoadHints& hints);

// Whether one of the three forms is there.
bool has_weight_matrix(const TensorSource& source, const std::string& key);

// A dense matrix [out, in] from a tensor of any name, such as a tied embedding. Throws as above.
DenseMatrix load_dense_matrix(const TensorSource& source, const std::string& tensor,
                              const LoadHints& hints);

// Experts stacked in one dense tensor, [experts, out, in] or, transposed, [experts, in, out]; or
// the same flattened to two dimensions. `hints` describe one expert and must give `in` and `out`.
struct StackedExperts {
  std::string tensor;
  std::string bias = {};  // tensor [experts, out], or empty
  std::int64_t experts = 0;
  LoadHints hints = {};
};
std::vector<DenseMatrix> load_stacked_experts(const TensorSource& source,
                                              const StackedExperts& stack);

}  // namespace bl
