#include "sample/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace bl {
namespace {

void check_range(const char* name, double value, double low, double high, const char* right) {
  if (std::isfinite(value) && value >= low && value <= high) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, should be {}", name, value, right);
}

}  // namespace

void validate(const SamplingParams& params) {
  check_range("temperature", params.temperature, 0, 1000, "0 (greedy) or above, at most 1000");
  check_range("top_p", params.top_p, 0, 1, "in 0 … 1");
  check_range("min_p", params.min_p, 0, 1, "in 0 … 1");
  check_range("repetition_penalty", params.repetition_penalty, 0.01, 100, "in 0.01 … 100");
  if (params.top_k < 0) {
    fail(ErrorCode::kInvalidArgument, "top_k is {}, should be 0 (off) or above", params.top_k);
  }
}

}  // namespace bl
