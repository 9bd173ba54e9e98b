#include "convert/folded_tensors.h"

#include <algorithm>

#include "model/dense_gather.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

HostArray array_of(const std::vector<float>& values) {
  const auto tensor =
      std::make_shared<Tensor>(make_host_tensor(DType::kF32, Shape{std::ssize(values)}));
  std::copy(values.begin(), values.end(), tensor->view().as<float>());
  return {tensor->view(), tensor};
}

// A plain matrix before its fold.
DenseMatrix stored_matrix(const MatrixWork& work) {
  const auto& matrix = std::get<DenseMatrix>(work.matrix);
  return work.rows.empty() ? matrix : gather_outputs(matrix, work.rows);
}

}  // namespace

FoldedTensors::FoldedTensors(const LoadPlan& plan) {
  for (const LoadTask& task : plan.tasks) {
    if (const auto* matrix = std::get_if<MatrixWork>(&task.work)) {
      if (matrix->fold) add_matrix(task.key, *matrix);
    } else if (const auto* norm = std::get_if<NormWork>(&task.work)) {
      add_vector(norm->weight);
      add_vector(norm->bias);
    } else if (const auto* table = std::get_if<TableWork>(&task.work)) {
      if (!table->fold) continue;
      makes_[table->tensor] = [table](const TensorSource& source, const std::string& name) {
        return folded_table(name, source.read(name).view, *table->fold);
      };
    }
  }
}

// A tied head has the name of the table, whose fold counts: the head gets a tensor of its own.
void FoldedTensors::add_matrix(const std::string& key, const MatrixWork& work) {
  makes_.try_emplace(key + ".weight", [&work](const TensorSource&, const std::string&) {
    return folded(stored_matrix(work), *work.fold).weight;
  });
  makes_.try_emplace(key + ".bias", [&work](const TensorSource&, const std::string&) {
    return folded_bias(stored_matrix(work).bias, work.fold->outputs);
  });
}

void FoldedTensors::add_vector(const VectorWork& work) {
  if (!work.values) return;
  makes_[work.tensor] = [&work](const TensorSource&, const std::string&) {
    return array_of(*work.values);
  };
}

std::optional<HostArray> FoldedTensors::find(const TensorSource& source,
                                             const std::string& name) const {
  const auto make = makes_.find(name);
  if (make == makes_.end()) return std::nullopt;
  return make->second(source, name);
}

}  // namespace bl
