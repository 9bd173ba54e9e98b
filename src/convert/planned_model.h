#pragma once
// A quantized model before it is made: its tensors, what their files take, and a model of these
// shapes that memory can be planned for.

#include <cstdint>
#include <string>
#include <vector>

#include "convert/rounded_matrix.h"
#include "format/safetensors_writer.h"
#include "model/model_loader.h"

namespace bl {

// A linear as it will be stored. `out` is padded to a multiple of 32.
struct PlannedMatrix {
  std::string key;
  std::int64_t in = 0;
  std::int64_t out = 0;
  GroupList groups = {};
  std::string reference = {};  // reference_name(); empty: the key
};

// The five tensors of an EXL2 matrix.
std::vector<TensorPlan> exl2_tensors(const PlannedMatrix& matrix);

// All tensors of the quantized model: those of `matrices`, and all others that the model reads, as
// binary16.
std::vector<TensorPlan> planned_tensors(const ModelFiles& files, const ModelLoader& loader,
                                        std::span<const PlannedMatrix> matrices);

// The options of the shards that a conversion writes, in one place so that sizes agree.
ShardOptions exl2_shards(std::uint64_t max_bytes);

// A model that has the tensors `tensors` and the config of `files`, for planning memory. Nothing
// but the tables of EXL2 matrices can be read from it; other tensors are zeros.
ModelFiles hollow_model(const ModelFiles& files, std::vector<TensorPlan> tensors,
                        std::span<const PlannedMatrix> matrices);

// The model `plain` with EXL2 tensors in place of its own.
ModelFiles exl2_files(const ModelFiles& plain, std::shared_ptr<TensorSource> tensors);

}  // namespace bl
