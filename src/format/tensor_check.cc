#include "format/tensor_check.h"

#include <algorithm>

namespace bl {

NamedArray::NamedArray(const TensorSource& source, const std::string& name,
                       std::initializer_list<DType> dtypes, int rank)
    : name_(name) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) fail(ErrorCode::kNotFound, "there is no tensor {}", quoted_name(name));
  file_ = info->file;
  if (std::find(dtypes.begin(), dtypes.end(), info->dtype) == dtypes.end()) {
    std::string wanted;
    for (const DType dtype : dtypes) {
      wanted += (wanted.empty() ? "" : ", ") + std::string(name_of(dtype));
    }
    reject("its dtype is {}; it must be {}", name_of(info->dtype), wanted);
  }
  if (info->shape.rank() != rank) {
    reject("its shape {} has {} dimensions; it must have {}", info->shape.to_string(),
           info->shape.rank(), rank);
  }
  array_ = source.read(name);
}

}  // namespace bl
