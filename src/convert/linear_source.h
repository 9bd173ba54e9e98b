#pragma once
// Which linears of a plain model conversion quantizes, and what its files keep beside them.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "convert/folded_tensors.h"
#include "model/model_loader.h"
#include "model/renamed_source.h"

namespace bl {

// What stands before and behind the blocks.
inline constexpr LoadRange kEnds{.first_block = 0, .end_block = 0};

// Whether conversion quantizes the linear that this task makes. What chooses experts or scales a
// whole head stays plain: it is small, and an error costs much. So does a linear whose number of
// inputs is no multiple of 32, which neither EXL2 nor GPTQ can store. Throws kInvalidArgument where
// it is quantized already.
bool is_quantized(const ModelLoader& loader, const LoadTask& task);

// The tasks of these linears, in the order of the plan.
std::vector<const LoadTask*> quantized_linears(const ModelLoader& loader, const LoadRange& range);

// Whether it is some outputs of a module that holds other linears, too. Not of a stack of experts.
bool is_fused_part(const LoadTask& task);

// Warns of linears that stay plain because of their number of inputs, if there are any.
void warn_of_plain_linears(const ModelLoader& loader);

// The number of outputs that the files hold for a linear of `out`: a multiple of 32, as EXL2 and
// GPTQ pack them.
constexpr std::int64_t padded_outputs(std::int64_t out) { return (out + 31) / 32 * 32; }

// The weights of a plain linear as [out, in], with its bias, as they are loaded: views where the
// files hold them so, otherwise copies.
DenseMatrix plain_matrix(const MatrixWork& work);

// The tensors of a model with quantized linears that are in floats: all that the model reads but
// the weights of these linears, and the biases of these, each under the key of its linear or, if
// `fused`, of the module that holds it in the files. `loader` must separate linears
// (LoadOptions::separate_linears); it need not outlive this unless it folds.
class RemainingTensors : public TensorSource {
 public:
  using Keys = std::set<std::string, std::less<>>;
  // `quantized`: LoadTask::key of each quantized linear.
  RemainingTensors(const ModelFiles& files, const ModelLoader& loader, const Keys& quantized,
                   bool fused = false);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

 private:
  struct Bias {
    TensorInfo info;
    HostArray values;
  };
  std::shared_ptr<const TensorSource> files_;
  RenamedSource source_;
  FoldedTensors folded_;
  Keys kept_;  // names in `source_`
  std::map<std::string, Bias, std::less<>> biases_;
};

}  // namespace bl
