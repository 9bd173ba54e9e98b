#include "convert/linear_source.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "model/dense_gather.h"
#include "model/load_planner.h"

namespace bl {

bool is_quantized(const ModelLoader& loader, const LoadTask& task) {
  const auto& work = std::get<MatrixWork>(task.work);
  const Role role = task.target.role;
  if (role == Role::kRouter || role == Role::kSharedExpertGate) return false;
  if (role == Role::kAttentionGate) {
    const BlockSpec& block = loader.spec().blocks[static_cast<std::size_t>(task.target.block)];
    if (block.attention->gate != AttentionGate::kSigmoidElement) return false;
  }
  if (!std::holds_alternative<DenseMatrix>(work.matrix)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is already quantized ({}); convert the original model instead", task.key,
         format_name(work.matrix));
  }
  return work.in % 32 == 0;
}

std::vector<const LoadTask*> quantized_linears(const ModelLoader& loader, const LoadRange& range) {
  std::vector<const LoadTask*> linears;
  for (const LoadTask& task : loader.load_plan().tasks) {
    const bool is_linear = std::holds_alternative<MatrixWork>(task.work);
    if (is_linear && range.contains(task.target) && is_quantized(loader, task)) {
      linears.push_back(&task);
    }
  }
  return linears;
}

bool is_fused_part(const LoadTask& task) {
  const auto* work = std::get_if<MatrixWork>(&task.work);
  return work != nullptr && !work->rows.empty() && task.target.index < 0;
}

void warn_of_plain_linears(const ModelLoader& loader) {
  std::int64_t count = 0;
  const LoadTask* first = nullptr;
  for (const LoadTask& task : loader.load_plan().tasks) {
    const auto* work = std::get_if<MatrixWork>(&task.work);
    if (work == nullptr || work->in % 32 == 0) continue;
    if (count++ == 0) first = &task;
  }
  if (count == 0) return;
  log_warning(
      "{} linears stay in binary16, because the number of their inputs is no multiple of 32, which "
      "EXL2 and GPTQ need; the first is {} with {} inputs",
      count, first->key, std::get<MatrixWork>(first->work).in);
}

DenseMatrix plain_matrix(const MatrixWork& work) {
  DenseMatrix matrix = std::get<DenseMatrix>(work.matrix);
  if (!work.rows.empty()) {
    matrix = gather_outputs(matrix, work.rows);
  } else if (matrix.transposed) {
    matrix = gather_outputs(matrix, row_range(0, matrix.out()));
  }
  if (work.fold) matrix = folded(matrix, *work.fold);
  return work.normalized ? normalized_outputs(matrix) : matrix;
}

namespace {

// The biases of the outputs that the linear has, and zeros for those that its format adds.
HostArray padded_biases(const MatrixWork& work) {
  const auto& matrix = std::get<DenseMatrix>(work.matrix);
  HostArray biases = work.rows.empty() ? matrix.bias : gather_biases(matrix, work.rows);
  if (work.fold) biases = folded_bias(biases, work.fold->outputs);
  const std::int64_t out = biases.view.shape[0];
  const std::int64_t padded = padded_outputs(out);
  if (padded == out) return biases;
  const auto tensor = std::make_shared<Tensor>(make_host_tensor(biases.view.dtype, Shape{padded}));
  const std::size_t size = size_of(biases.view.dtype);
  auto* to = tensor->view().as<std::byte>();
  std::memset(to, 0, size * static_cast<std::size_t>(padded));
  std::memcpy(to, biases.view.data, size * static_cast<std::size_t>(out));
  return {tensor->view(), tensor};
}

}  // namespace

RemainingTensors::RemainingTensors(const ModelFiles& files, const ModelLoader& loader,
                                   const Keys& quantized, bool fused)
    : files_(files.source),
      source_(*files_, CheckpointNames(*loader.spec().arch)),
      folded_(loader.load_plan()) {
  Keys replaced, read;
  for (const LoadTask& task : loader.load_plan().tasks) {
    const bool is_replaced = !task.key.empty() && quantized.contains(task.key);
    const bool keeps_bias = fused && is_fused_part(task);
    for (const std::string& tensor : task.tensors) {
      (is_replaced && !(keeps_bias && tensor.ends_with(".bias")) ? replaced : read).insert(tensor);
    }
    if (!is_replaced || keeps_bias) continue;
    const auto& work = std::get<MatrixWork>(task.work);
    if (bias_of(work.matrix).view.empty()) continue;
    const HostArray bias = padded_biases(work);
    biases_[task.key + ".bias"] = {{bias.view.dtype, bias.view.shape, files.config_file}, bias};
  }
  for (const std::string& name : source_.names()) {
    const bool is_read = loader.load_plan().tensors.contains(name);
    const bool is_replaced = replaced.contains(name) && !read.contains(name);
    if (is_read && !is_replaced && !biases_.contains(name)) kept_.insert(name);
  }
}

const TensorInfo* RemainingTensors::find(std::string_view name) const {
  const auto bias = biases_.find(name);
  if (bias != biases_.end()) return &bias->second.info;
  return kept_.contains(name) ? source_.find(name) : nullptr;
}

std::vector<std::string> RemainingTensors::names() const {
  std::vector<std::string> names(kept_.begin(), kept_.end());
  for (const auto& [name, bias] : biases_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

HostArray RemainingTensors::read(std::string_view name) const {
  const auto bias = biases_.find(name);
  if (bias != biases_.end()) return bias->second.values;
  std::optional<HostArray> folded = folded_.find(source_, std::string(name));
  return folded ? *std::move(folded) : source_.read(name);
}

void RemainingTensors::done_with(std::string_view name) const {
  if (!biases_.contains(name)) source_.done_with(name);
}

}  // namespace bl
