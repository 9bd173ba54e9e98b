#include "convert/head_mix.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace bl {

GroupList head_groups(int head_bits, std::int64_t in) {
  struct Mix {
    int head_bits;
    int high;
    double share;  // of the slots that get the width `high`; the rest gets `head_bits`
    std::int32_t group;
  };
  constexpr Mix kMixes[] = {{2, 4, 0.3, 32},   {3, 4, 0.15, 32},  {4, 6, 0.15, 32},
                            {5, 6, 0.15, 128}, {6, 8, 0.15, 128}, {8, 8, 0.0, 128}};
  const auto* mix = std::find_if(std::begin(kMixes), std::end(kMixes),
                                 [&](const Mix& m) { return m.head_bits == head_bits; });
  if (mix == std::end(kMixes)) {
    fail(ErrorCode::kInvalidArgument, "head bits {} should be 2, 3, 4, 5, 6 or 8", head_bits);
  }
  const double wanted = static_cast<double>(in) * mix->share / mix->group;
  const auto high = std::min(static_cast<std::int64_t>(std::ceil(wanted)) * mix->group, in);
  GroupList groups = uniform_groups(mix->high, mix->group, high);
  const GroupList rest = uniform_groups(mix->head_bits, mix->group, in - high);
  groups.insert(groups.end(), rest.begin(), rest.end());
  return groups;
}

}  // namespace bl
