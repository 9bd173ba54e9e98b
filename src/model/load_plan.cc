#include "model/load_plan.h"

#include <algorithm>

#include "base/check.h"

namespace bl {

bool LoadRange::contains(const LoadTarget& target) const {
  if (target.block >= 0) return target.block >= first_block && target.block < end_block;
  return target.role < Role::kAttentionNorm ? front : back;
}

MatrixWork& LoadPlan::matrix(std::int32_t linear) {
  const std::int32_t task = linears.at(static_cast<std::size_t>(linear));
  return std::get<MatrixWork>(tasks[static_cast<std::size_t>(task)].work);
}

const MatrixWork& LoadPlan::matrix(std::int32_t linear) const {
  const std::int32_t task = linears.at(static_cast<std::size_t>(linear));
  return std::get<MatrixWork>(tasks[static_cast<std::size_t>(task)].work);
}

void LoadPlan::fold(const ModelFolds& folds) {
  for (const auto& [linear, fold] : folds.linears) matrix(linear).fold = fold;
  const auto replace = [&](VectorWork& vector) {
    const auto values = folds.vectors.find(vector.tensor);
    if (values == folds.vectors.end()) return;
    BL_CHECK(std::ssize(*values->second) == vector.shape.elements());
    vector.values = values->second;
  };
  for (LoadTask& task : tasks) {
    if (auto* norm = std::get_if<NormWork>(&task.work)) {
      replace(norm->weight);
      replace(norm->bias);
    } else if (auto* table = std::get_if<TableWork>(&task.work)) {
      table->fold = folds.tables;
    }
  }
}

std::vector<std::int32_t> LoadPlan::ids(const LoadRange& range) const {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (range.contains(tasks[i].target)) ids.push_back(static_cast<std::int32_t>(i));
  }
  return ids;
}

LoadTotals LoadPlan::totals(const LoadRange& range) const {
  LoadTotals totals;
  for (const LoadTask& task : tasks) {
    if (!range.contains(task.target)) continue;
    totals.stored += task.stored;
    totals.packed += task.packed;
    totals.on_host += task.on_host;
    const auto* matrix = std::get_if<MatrixWork>(&task.work);
    if (matrix == nullptr) continue;
    if (matrix->quantized) {
      totals.quantized_stored += task.stored;
      totals.quantized_packed += task.packed;
    }
    totals.max_in = std::max(totals.max_in, matrix->in);
    totals.max_slots = std::max(totals.max_slots, matrix->slots);
    totals.max_out = std::max(totals.max_out, matrix->out);
  }
  return totals;
}

}  // namespace bl
