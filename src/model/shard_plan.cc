#include "model/shard_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace bl {
namespace {

using Features = std::vector<std::int32_t>;

class PlanCutter {
 public:
  PlanCutter(LoadPlan& plan, Backend& backend, const ModelSpec& spec, Share share)
      : plan_(plan), backend_(backend), spec_(spec), share_(share) {}

  void run() {
    for (const LoadTask& task : plan_.tasks) {
      if (task.target.role != Role::kDown) continue;
      hidden_[key_of(task.target)] = input_share(std::get<MatrixWork>(task.work).matrix, share_);
    }
    for (LoadTask& task : plan_.tasks) {
      const ShardRule rule = shard_rule(task.target.role);
      if (rule == ShardRule::kSplitOut) cut_outputs(task);
      if (rule == ShardRule::kSplitIn) cut_inputs(task);
    }
  }

 private:
  // Identifies a feed-forward: its block and LoadTarget::index.
  using Key = std::pair<std::int32_t, std::int32_t>;
  static Key key_of(const LoadTarget& target) { return {target.block, target.index}; }

  // Returns the widths of the matrices that a linear fuses; one width if it fuses none.
  std::vector<std::int64_t> parts_of(const LoadTarget& target, std::int64_t out) const {
    const BlockSpec* block =
        target.block >= 0 ? &spec_.blocks[static_cast<std::size_t>(target.block)] : nullptr;
    if (target.role == Role::kQkv) {
      const AttentionSpec& attention = *block->attention;
      const std::int64_t kv = std::int64_t{attention.kv_heads} * attention.head_dim;
      return {out - 2 * kv, kv, kv};
    }
    const bool hidden = target.role == Role::kGateUp || target.role == Role::kUp;
    if (!hidden) return {out};
    const FeedForwardSpec& layer = target.index >= 0               ? block->moe->expert
                                   : target.index == kSharedExpert ? *block->moe->shared
                                                                   : *block->feed_forward;
    return std::vector<std::int64_t>(static_cast<std::size_t>(out / layer.intermediate),
                                     layer.intermediate);
  }

  // Returns the outputs that the share holds, part by part.
  Features outputs_of(const LoadTarget& target, const MatrixWork& work) const {
    const bool is_hidden =
        target.role == Role::kGate || target.role == Role::kUp || target.role == Role::kGateUp;
    Features features;
    std::int64_t first = 0;
    for (const std::int64_t width : parts_of(target, work.out)) {
      const Features part =
          is_hidden ? hidden_.at(key_of(target)) : output_share(work.matrix, width, share_);
      // Only the last part may be followed by padding.
      const bool last = first + width == work.out;
      for (const std::int32_t feature : part) {
        if (feature < width || last) features.push_back(static_cast<std::int32_t>(first) + feature);
      }
      first += width;
    }
    return features;
  }

  void cut_outputs(LoadTask& task) {
    MatrixWork& work = std::get<MatrixWork>(task.work);
    const std::int64_t out = work.out;
    Features features = outputs_of(task.target, work);
    work.out = std::count_if(features.begin(), features.end(),
                             [&](std::int32_t feature) { return feature < out; });
    if (work.rows.empty()) {
      // A part of a matrix that is quantized as a whole is cut out of it already.
      if (work.cut.rule == ShardRule::kSplitOut) {
        for (std::int32_t& feature : features) {
          feature = work.cut.features[static_cast<std::size_t>(feature)];
        }
      }
      work.cut = {ShardRule::kSplitOut, std::move(features)};
    } else {
      std::vector<std::int64_t> rows;
      for (const std::int32_t feature : features) {
        rows.push_back(work.rows[static_cast<std::size_t>(feature)]);
      }
      work.rows = std::move(rows);
    }
    measure(task, out, work.out);
  }

  void cut_inputs(LoadTask& task) {
    MatrixWork& work = std::get<MatrixWork>(task.work);
    const std::int64_t in = work.in;
    Features features = task.target.role == Role::kDown ? hidden_.at(key_of(task.target))
                                                        : input_share(work.matrix, share_);
    if (share_.index > 0) {
      std::visit([](auto& matrix) { matrix.bias = {}; }, work.matrix);
    }
    work.in = std::ssize(features);
    work.cut = {ShardRule::kSplitIn, std::move(features)};
    measure(task, in, work.in);
  }

  // Updates the memory and widths of a task that keeps `part` of its `whole` features.
  void measure(LoadTask& task, std::int64_t whole, std::int64_t part) {
    MatrixWork& work = std::get<MatrixWork>(task.work);
    const WeightMatrix layout = cut_matrix(work.matrix, work.cut, CodeCopy::kLeftOut);
    task.stored = task.stored * static_cast<std::size_t>(part) / static_cast<std::size_t>(whole);
    task.packed = backend_.packed_bytes(layout, {.out = work.out});
    if (task.packed == 0) task.packed = task.stored;
    if (!bias_of(layout).view.empty()) {
      task.packed += backend_.weight_bytes(static_cast<std::size_t>(work.out) * sizeof(float));
    }
    work.slots = backend_.packed_inputs(layout);
  }

  LoadPlan& plan_;
  Backend& backend_;
  const ModelSpec& spec_;
  Share share_;
  std::map<Key, Features> hidden_;  // channels between the linears of each feed-forward
};

}  // namespace

ShardRule shard_rule(Role role) {
  switch (role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kQkv:
    case Role::kGate:
    case Role::kUp:
    case Role::kGateUp:
    case Role::kHead:
      return ShardRule::kSplitOut;
    case Role::kO:
    case Role::kDown:
      return ShardRule::kSplitIn;
    default:
      return ShardRule::kReplicate;
  }
}

void cut_plan(LoadPlan& plan, Backend& backend, const ModelSpec& spec, Share share) {
  PlanCutter(plan, backend, spec, share).run();
  plan.sites = {};
}

}  // namespace bl
