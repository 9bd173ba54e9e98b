#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "format/quoted_name.h"
#include "format/tensor_source.h"

namespace bl {

// One of the tensors that a format prescribes. Its dtype and rank are checked when it is read, and
// it can report what is wrong with it. Messages start with "FILE: tensor 'NAME': ".
class NamedArray {
 public:
  // Throws kNotFound where the tensor is missing, kInvalidFile where its dtype or rank is another.
  NamedArray(const TensorSource& source, const std::string& name,
             std::initializer_list<DType> dtypes, int rank);

  const HostArray& array() const { return array_; }
  const std::string& name() const { return name_; }
  DType dtype() const { return array_.view.dtype; }
  std::int64_t size(int dimension) const { return array_.view.shape[dimension]; }
  std::string shape() const { return array_.view.shape.to_string(); }

  // The elements as T, which must have the size of the dtype.
  template <class T>
  std::span<const T> span() const {
    BL_CHECK(sizeof(T) == size_of(dtype()));
    return {array_.view.as<const T>(), static_cast<std::size_t>(array_.view.shape.elements())};
  }

  // Throws kInvalidFile with the message.
  template <class... Args>
  [[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kInvalidFile, "{}: tensor {}: {}", file_, quoted_name(name_),
         fmt::format(format, std::forward<Args>(args)...));
  }
  // Throws kUnsupported with the message.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUnsupported, "{}: tensor {}: {}", file_, quoted_name(name_),
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string name_;
  std::string file_;
  HostArray array_;
};

}  // namespace bl
