#pragma once
// GPTQ matrices of linears that a model's files hold in one module: readers of others know that
// module only.

#include <string>
#include <vector>

#include "format/safetensors_writer.h"
#include "format/tensor_source.h"
#include "model/model_loader.h"

namespace bl {

struct FusedModule {
  struct Part {
    std::string key;                 // of the linear
    std::vector<std::int64_t> rows;  // outputs of the module, in the order of the linear's
  };
  std::string key;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<Part> parts = {};
};

// The modules of which the loader, which separates linears, has planned parts that conversion
// quantizes. Not stacks of experts.
std::vector<FusedModule> fused_modules(const ModelLoader& loader);

// The tensors KEY.qweight, KEY.qzeros, KEY.scales and KEY.g_idx of a module, from those of its
// parts in `file`. Outputs that parts have beyond their rows are padding and left out.
class FusedGptq {
 public:
  // Both must outlive this. The parts must have one width and one g_idx, as those have that were
  // rounded with the same input.
  FusedGptq(const FusedModule& module, const TensorSource& file);
  std::vector<TensorPlan> plans() const;
  std::vector<std::byte> bytes_of(const TensorPlan& plan) const;

 private:
  template <class T>
  std::vector<std::byte> columns(const TensorPlan& plan, const char* suffix) const;
  std::vector<std::byte> zeros(const TensorPlan& plan) const;
  std::vector<std::byte> groups() const;

  const FusedModule& module_;
  const TensorSource& file_;
  std::int64_t bits_ = 0;
};

}  // namespace bl
