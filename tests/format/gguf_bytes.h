#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bl::test {

// Bytes of GGUF files as tests want them, right or wrong.
class GgufBytes {
 public:
  template <class T>
  static std::string raw(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string text(std::string_view value) {
    return raw<std::uint64_t>(value.size()) + std::string(value);
  }
  // Key, type and bytes of the value, as they stand in a file.
  static std::string entry(std::string_view key, std::uint32_t type, std::string_view value) {
    return text(key) + raw(type) + std::string(value);
  }

  GgufBytes& add(std::string_view key, std::uint32_t value) {
    return key_value(key, 4, raw(value));
  }
  GgufBytes& add(std::string_view key, float value) { return key_value(key, 6, raw(value)); }
  GgufBytes& add(std::string_view key, bool value) {
    return key_value(key, 7, raw<std::uint8_t>(value ? 1 : 0));
  }
  GgufBytes& add(std::string_view key, std::string_view value) {
    return key_value(key, 8, text(value));
  }
  GgufBytes& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  GgufBytes& add_texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<std::uint32_t>(8) + raw<std::uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    return key_value(key, 9, bytes);
  }
  template <class T>
  GgufBytes& add_list(std::string_view key, std::uint32_t element, const std::vector<T>& values) {
    std::string bytes = raw(element) + raw<std::uint64_t>(values.size());
    for (const T value : values) bytes += raw(value);
    return key_value(key, 9, bytes);
  }
  GgufBytes& key_value(std::string_view key, std::uint32_t type, std::string_view value) {
    metadata_ += entry(key, type, value);
    ++keys_;
    return *this;
  }
  // `sizes` innermost first, as the file has them; data goes to the next multiple of 32.
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes,
                    std::uint32_t type, std::string_view data) {
    return tensor_at(name, sizes, type, data_.size(), data);
  }
  GgufBytes& tensor_at(std::string_view name, const std::vector<std::uint64_t>& sizes,
                       std::uint32_t type, std::uint64_t offset, std::string_view data) {
    directory_ += text(name) + raw(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) directory_ += raw(size);
    directory_ += raw(type) + raw(offset);
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensors_;
    return *this;
  }
  // An F32 tensor of 0, step, 2·step, …
  GgufBytes& ramp(std::string_view name, const std::vector<std::uint64_t>& sizes, float step) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : sizes) elements *= size;
    std::string data;
    for (std::uint64_t i = 0; i < elements; ++i) data += raw(static_cast<float>(i) * step);
    return tensor(name, sizes, 0, data);
  }

  std::string bytes(std::uint32_t version = 3) const {
    std::string out = "GGUF" + raw(version) + raw(tensors_) + raw(keys_) + metadata_ + directory_;
    if (tensors_ > 0) out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

 private:
  std::string metadata_;
  std::string directory_;
  std::string data_;
  std::uint64_t keys_ = 0;
  std::uint64_t tensors_ = 0;
};

inline std::span<const std::byte> as_span(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

}  // namespace bl::test
