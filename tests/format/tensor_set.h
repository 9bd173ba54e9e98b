#pragma once
// Small tensor sets in memory, for tests that spoil one thing at a time.

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/safetensors_file.h"

namespace bl::test {

struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

template <class T>
RawTensor raw(std::string dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  RawTensor tensor{std::move(dtype), std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// The bytes of a safetensors file: 8 bytes of length, `json`, `data`.
inline std::vector<std::byte> file_of(std::string_view json, std::vector<std::byte> data) {
  std::vector<std::byte> file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<std::byte>(json.size() >> (8 * i) & 0xff));
  for (const char c : json) file.push_back(static_cast<std::byte>(c));
  file.insert(file.end(), data.begin(), data.end());
  return file;
}

using TensorSet = std::map<std::string, RawTensor>;

inline std::vector<std::byte> file_of(const TensorSet& set) {
  std::string json = "{";
  std::vector<std::byte> data;
  for (const auto& [name, tensor] : set) {
    json +=
        fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    json.size() > 1 ? "," : "", name, tensor.dtype, fmt::join(tensor.shape, ","),
                    data.size(), data.size() + tensor.bytes.size());
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  return file_of(json, std::move(data));
}

inline SafetensorsFile open_bytes(std::vector<std::byte> bytes, std::string what = "test") {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return SafetensorsFile(owner, *owner, std::move(what));
}
inline SafetensorsFile open_set(const TensorSet& set) { return open_bytes(file_of(set)); }

// That `body` throws Error with this code, one line, whose message holds every one of `parts`.
inline void expect_error(ErrorCode code, const std::vector<std::string>& parts,
                         const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    const std::string_view message = e.what();
    EXPECT_EQ(message.find('\n'), std::string_view::npos) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string_view::npos) << part << " is not in: " << message;
    }
  }
}

}  // namespace bl::test
