#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "format/tensor_source.h"
#include "model/load_plan.h"

namespace bl {

// The tensors of a model that its folds change, as files should hold them: norms, biases, tables,
// and linears that stay plain.
class FoldedTensors {
 public:
  // `plan` must outlive this, and have its folds.
  explicit FoldedTensors(const LoadPlan& plan);

  // Nothing where the tensor is what `source` has.
  std::optional<HostArray> find(const TensorSource& source, const std::string& name) const;

 private:
  using Make = std::function<HostArray(const TensorSource& source, const std::string& name)>;
  void add_matrix(const std::string& key, const MatrixWork& work);
  void add_vector(const VectorWork& work);

  std::map<std::string, Make> makes_;  // by name
};

}  // namespace bl
