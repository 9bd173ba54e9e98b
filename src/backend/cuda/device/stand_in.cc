#include "backend/cuda/device/stand_in.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

// Shared memory that the driver keeps of every CTA's, from compute capability 8.0 on.
constexpr std::size_t kReservedPerCta = 1024;
constexpr std::size_t kSharedUnit = 128;

// Compute capabilities and their limits, CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability".
struct Limits {
  int capability;
  std::size_t shared_bytes_per_cta;
  std::size_t shared_bytes_per_multiprocessor;
  int warps_per_multiprocessor;
  int ctas_per_multiprocessor;
};
constexpr Limits kLimits[] = {{80, 163 << 10, 164 << 10, 64, 32},
                              {86, 99 << 10, 100 << 10, 48, 16},
                              {89, 99 << 10, 100 << 10, 48, 24}};

const Limits* find_limits(int capability) {
  const auto* found = std::find_if(std::begin(kLimits), std::end(kLimits),
                                   [&](const Limits& of) { return of.capability == capability; });
  return found == std::end(kLimits) ? nullptr : found;
}

}  // namespace

int parse_stand_in(const char* text) {
  const std::string_view value(text);
  for (const Limits& of : kLimits) {
    if (value == std::to_string(of.capability)) return of.capability;
  }
  fail(ErrorCode::kInvalidArgument, "BITLOOM_CUDA_CAPABILITY={}: it can be 80, 86 or 89", value);
}

void act_as(DeviceFacts& facts, int as, int code_capability) {
  constexpr int kDependentLaunch = 90;
  if (as == 0) {
    if (facts.compute_capability < kDependentLaunch || code_capability >= kDependentLaunch) return;
    fail(
        ErrorCode::kUnsupported,
        "cuda:{}: this build's kernels are for compute capability {}, and {} has {}: build for it, "
        "or, to test the others, set BITLOOM_CUDA_CAPABILITY to 80, 86 or 89",
        facts.index, code_capability, facts.name, facts.compute_capability);
  }
  if (code_capability < 80 || code_capability > as || facts.compute_capability < as) {
    fail(ErrorCode::kUnsupported,
         "cuda:{}: BITLOOM_CUDA_CAPABILITY={} needs a build of preset cuda-stand-in; this build's "
         "kernels are for compute capability {}, the card has {}",
         facts.index, as, code_capability, facts.compute_capability);
  }
  if (facts.compute_capability == as) return;
  const Limits* limits = find_limits(as);
  BL_CHECK(limits != nullptr);
  facts.card_shared_bytes_per_multiprocessor = facts.shared_bytes_per_multiprocessor;
  facts.compute_capability = as;
  facts.shared_bytes_per_cta = limits->shared_bytes_per_cta;
  facts.shared_bytes_per_multiprocessor = limits->shared_bytes_per_multiprocessor;
}

int ctas_as(const DeviceFacts& facts, const CtaDemand& demand) {
  const Limits* limits = find_limits(facts.compute_capability);
  BL_CHECK(facts.is_stand_in() && limits != nullptr && demand.threads > 0);
  const std::size_t shared =
      demand.static_shared_bytes + demand.dynamic_shared_bytes + kReservedPerCta;
  const auto by_shared = static_cast<int>(limits->shared_bytes_per_multiprocessor / shared);
  const int by_warps = limits->warps_per_multiprocessor / ((demand.threads + 31) / 32);
  return std::min({by_shared, by_warps, limits->ctas_per_multiprocessor});
}

std::size_t padded_shared_bytes(const DeviceFacts& facts, const CtaDemand& demand) {
  const int ctas = ctas_as(facts, demand);
  BL_CHECK(ctas > 0);
  // One CTA more than `ctas` must not fit.
  const std::size_t card = facts.card_shared_bytes_per_multiprocessor;
  const std::size_t least =
      (card / static_cast<std::size_t>(ctas + 1) / kSharedUnit + 1) * kSharedUnit;
  const std::size_t taken = demand.static_shared_bytes + kReservedPerCta;
  return std::max(demand.dynamic_shared_bytes, least > taken ? least - taken : 0);
}

}  // namespace bl::cuda
