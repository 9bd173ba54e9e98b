#include "format/shard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "format/bit_codec.h"
#include "format/quoted_name.h"
#include "format/select_inputs.h"
#include "format/select_outputs.h"

namespace bl {
namespace {

// Features that stay together: `count` of them from `first` on.
struct Run {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

void check_enough(const WeightMatrix& matrix, std::size_t parts, const char* features,
                  const Share& share) {
  BL_CHECK(share.index >= 0 && share.index < share.count);
  if (parts >= static_cast<std::size_t>(share.count)) return;
  fail(ErrorCode::kUnsupported,
       "linear {} ({}): its {} can be cut into {} parts, not into {} shards; use fewer shards",
       quoted_name(name_of(matrix)), format_name(matrix), features, parts, share.count);
}

std::vector<std::int32_t> features_of(const Run& run) {
  std::vector<std::int32_t> features(static_cast<std::size_t>(run.count));
  std::iota(features.begin(), features.end(), static_cast<std::int32_t>(run.first));
  return features;
}

// An even range of [0, features) in multiples of `unit`, or of 32 where that gives every share one.
std::vector<std::int32_t> range_share(const WeightMatrix& matrix, std::int64_t features,
                                      std::int64_t unit, const char* name, Share share) {
  if (features / kCodesPerRun >= share.count) unit = kCodesPerRun;
  const std::int64_t units = (features + unit - 1) / unit;
  check_enough(matrix, static_cast<std::size_t>(units), name, share);
  const std::int64_t begin = units * share.index / share.count * unit;
  const std::int64_t end = std::min(features, units * (share.index + 1) / share.count * unit);
  return features_of({begin, end - begin});
}

// Groups, or runs of 32 slots where there are fewer groups than shares.
std::vector<Run> parts_of(const Exl2Matrix& matrix, int shares) {
  std::vector<Run> parts;
  const bool whole = std::ssize(matrix.groups) >= shares;
  for (const Exl2Matrix::Group& group : matrix.groups) {
    const std::int32_t size = whole ? group.slots : kCodesPerRun;
    for (std::int32_t slot = 0; slot < group.slots; slot += size) {
      parts.push_back({group.first_slot + slot, size});
    }
  }
  return parts;
}

}  // namespace

std::vector<std::int32_t> output_share(const WeightMatrix& matrix, std::int64_t out, Share share) {
  BL_CHECK(out > 0 && out <= out_features(matrix));
  if (!std::holds_alternative<Exl2Matrix>(matrix)) {
    return range_share(matrix, out, 1, "outputs", share);
  }
  const std::int64_t padded = (out + kCodesPerRun - 1) / kCodesPerRun * kCodesPerRun;
  return range_share(matrix, padded, kCodesPerRun, "outputs", share);
}

std::vector<std::int32_t> input_share(const WeightMatrix& matrix, Share share) {
  if (std::holds_alternative<DenseMatrix>(matrix)) {
    return range_share(matrix, in_features(matrix), 1, "inputs", share);
  }
  if (const auto* gptq = std::get_if<GptqMatrix>(&matrix)) {
    return range_share(matrix, gptq->in, 32 / std::gcd(32, gptq->bits), "inputs", share);
  }
  const Exl2Matrix& exl2 = std::get<Exl2Matrix>(matrix);
  const std::vector<Run> parts = parts_of(exl2, share.count);
  check_enough(matrix, parts.size(), "inputs", share);
  std::vector<std::int32_t> channels;
  for (auto p = static_cast<std::size_t>(share.index); p < parts.size();
       p += static_cast<std::size_t>(share.count)) {
    const auto first = exl2.perm.begin() + parts[p].first;
    channels.insert(channels.end(), first, first + parts[p].count);
  }
  return channels;
}

WeightMatrix cut_matrix(const WeightMatrix& matrix, const MatrixCut& cut, CodeCopy codes) {
  switch (cut.rule) {
    case ShardRule::kReplicate:
      return matrix;
    case ShardRule::kSplitOut:
      return select_outputs(matrix, cut.features, codes);
    case ShardRule::kSplitIn:
      return select_inputs(matrix, cut.features, codes);
  }
  BL_CHECK(false);
  return matrix;
}

}  // namespace bl
