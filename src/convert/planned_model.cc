#include "convert/planned_model.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "convert/linear_source.h"

namespace bl {
namespace {

// Code words of a column, 32 bits each.
std::int64_t word_rows(const GroupList& groups) {
  std::int64_t rows = 0;
  for (const SlotGroup& group : groups) rows += std::int64_t{group.slots} * group.bits / 32;
  return rows;
}

class HollowSource : public TensorSource {
 public:
  HollowSource(std::vector<TensorPlan> tensors, std::span<const PlannedMatrix> matrices) {
    for (TensorPlan& tensor : tensors) {
      Shape shape;
      for (const std::int64_t size : tensor.shape) shape.append(size);
      largest_ = std::max<std::uint64_t>(largest_, tensor.bytes());
      infos_[tensor.name] = {tensor.dtype, shape, "planned model"};
    }
    for (const PlannedMatrix& matrix : matrices) {
      groups_[matrix.key + ".q_groups"] = matrix.groups;
      permutations_.insert(matrix.key + ".q_invperm");
    }
  }

  const TensorInfo* find(std::string_view name) const override {
    const auto at = infos_.find(name);
    return at == infos_.end() ? nullptr : &at->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : infos_) names.push_back(name);
    return names;
  }
  HostArray read(std::string_view name) const override {
    const TensorInfo* info = find(name);
    if (info == nullptr) fail(ErrorCode::kNotFound, "planned model: no tensor {}", name);
    const auto groups = groups_.find(name);
    if (groups == groups_.end() && !permutations_.contains(name)) return zeros(*info);
    const auto tensor = std::make_shared<Tensor>(make_host_tensor(info->dtype, info->shape));
    if (groups != groups_.end()) {
      fill_groups(groups->second, tensor->view());
    } else {
      auto* to = tensor->view().as<std::int32_t>();
      std::iota(to, to + info->shape.elements(), 0);
    }
    return {tensor->view(), tensor};
  }

 private:
  // Pairs of width and first word row, docs/formats/exl2.md §6.
  static void fill_groups(const GroupList& groups, const TensorView& view) {
    auto* to = view.as<std::uint16_t>();
    std::int64_t row = 0;
    for (const SlotGroup& group : groups) {
      *to++ = static_cast<std::uint16_t>(group.bits);
      *to++ = static_cast<std::uint16_t>(row);
      row += std::int64_t{group.slots} * group.bits / 32;
    }
  }
  // One piece of memory serves all; fresh memory is zero, and what nobody reads takes no room.
  HostArray zeros(const TensorInfo& info) const {
    if (!zeros_) zeros_ = std::shared_ptr<void>(std::calloc(largest_, 1), std::free);
    if (!zeros_) fail(ErrorCode::kOutOfMemory, "no memory to plan a tensor of {} bytes", largest_);
    return {view_of(zeros_.get(), info.dtype, info.shape), zeros_};
  }

  std::map<std::string, TensorInfo, std::less<>> infos_;
  std::map<std::string, GroupList, std::less<>> groups_;
  std::set<std::string, std::less<>> permutations_;
  std::uint64_t largest_ = 1;
  mutable std::shared_ptr<void> zeros_;
};

}  // namespace

std::vector<TensorPlan> exl2_tensors(const PlannedMatrix& matrix) {
  const auto groups = std::ssize(matrix.groups);
  return {
      {matrix.key + ".q_weight", DType::kI32, {word_rows(matrix.groups), matrix.out}},
      {matrix.key + ".q_groups", DType::kI16, {2 * groups}},
      {matrix.key + ".q_scale", DType::kI32, {groups, matrix.out / 8}},
      {matrix.key + ".q_scale_max", DType::kF16, {groups}},
      {matrix.key + ".q_invperm", DType::kI32, {matrix.in}},
  };
}

std::vector<TensorPlan> planned_tensors(const ModelFiles& files, const ModelLoader& loader,
                                        std::span<const PlannedMatrix> matrices) {
  RemainingTensors::Keys quantized;
  std::map<std::string, TensorPlan> sorted;
  for (const PlannedMatrix& matrix : matrices) {
    quantized.insert(matrix.key);
    for (TensorPlan& tensor : exl2_tensors(matrix)) sorted[tensor.name] = std::move(tensor);
  }
  const RemainingTensors plain(files, loader, quantized);
  std::vector<TensorPlan> plans;
  for (const std::string& name : plain.names()) {
    plans.push_back(plan_tensor(name, DType::kF16, plain.find(name)->shape));
  }
  for (auto& [name, tensor] : sorted) plans.push_back(std::move(tensor));
  return plans;
}

ShardOptions exl2_shards(std::uint64_t max_bytes) {
  ShardOptions options;
  options.base_name = "output";
  options.max_bytes = max_bytes;
  options.write_index = false;
  return options;
}

ModelFiles hollow_model(const ModelFiles& files, std::vector<TensorPlan> tensors,
                        std::span<const PlannedMatrix> matrices) {
  return exl2_files(files, std::make_shared<HollowSource>(std::move(tensors), matrices));
}

ModelFiles exl2_files(const ModelFiles& plain, std::shared_ptr<TensorSource> tensors) {
  ModelFiles result = plain;
  result.config["quantization_config"] = {{"quant_method", "exl2"}};
  result.source = std::move(tensors);
  result.gptq.reset();
  return result;
}

}  // namespace bl
