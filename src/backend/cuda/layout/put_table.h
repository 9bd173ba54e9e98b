#pragma once
#include <cstddef>
#include <cstring>
#include <vector>

namespace bl::cuda {

// Copies the bytes of a table to `to`.
template <class T>
void put_table(std::byte* to, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
}

}  // namespace bl::cuda
