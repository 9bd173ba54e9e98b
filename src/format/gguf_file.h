#pragma once
// GGUF versions 2 and 3, little-endian: the metadata and the tensor directory of a model, in one
// file or split over several (gguf_split.h). Nothing in a file is trusted: every count is compared
// with the bytes that are left before memory is taken for it, every product is checked, and the
// bytes of every tensor lie inside its file and overlap no other's. Specification:
// ggml/docs/gguf.md of the ggml project; docs/formats/gguf.md.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "format/gguf_types.h"
#include "tensor/shape.h"

namespace bl {

// The numbers are those that the file stores.
enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view name_of(GgufValueType type);  // "u8", "string" …, for messages

// One metadata value. Strings and arrays are views into the file.
struct GgufValue {
  struct Array {
    GgufValueType element = GgufValueType::kU8;
    std::uint64_t count = 0;
    std::span<const std::byte> bytes;       // numbers and booleans, packed
    std::vector<std::string_view> strings;  // filled if element is kString
  };
  GgufValueType type = GgufValueType::kU8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, Array> value;
};

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  // Outermost dimension first, as everywhere in bitloom: [out, in]. The file stores the reverse.
  Shape shape;
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  // Maps and parses a file, and with any shard of a split model all of its shards. Throws kNotFound
  // or kIo where one cannot be read, kInvalidFile where it breaks the format or shards do not fit
  // together, kUnsupported for other versions, big-endian files and unknown element types.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  // Bytes in memory that outlive the object; `name` names them in messages.
  struct Bytes {
    std::span<const std::byte> bytes;
    std::string name;
  };
  // Parses a model in memory: one file, or all shards in order.
  static std::shared_ptr<const GgufFile> parse(const std::vector<Bytes>& shards);
  static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes, std::string name) {
    return parse(std::vector<Bytes>{Bytes{bytes, std::move(name)}});
  }

  // The file's path; of a split model, that of the first shard.
  const std::string& name() const { return name_; }
  std::uint32_t version() const { return version_; }

  // Metadata. A key that is absent gives nullptr or nullopt; a value of the wrong type throws
  // kInvalidFile naming the key, what was found and what would be right.
  const GgufValue* find(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::span<const std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<bool>> booleans(std::string_view key) const;
  // False if the key is absent, too.
  bool is_array(std::string_view key) const;
  const std::vector<std::string>& keys() const { return keys_; }

  // All tensors, in file order.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // nullptr if there is no such tensor.
  const GgufTensor* find_tensor(std::string_view name) const;

  // Tells the kernel that the pages of these bytes need not stay resident.
  void done_with(std::span<const std::byte> bytes) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  static std::shared_ptr<GgufFile> map(const std::filesystem::path& path);
  static std::shared_ptr<GgufFile> parse_one(std::span<const std::byte> bytes, std::string name);
  using Shards = std::vector<std::shared_ptr<GgufFile>>;
  static std::shared_ptr<const GgufFile> join(Shards shards);
  void check_place(std::size_t number, std::size_t count) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view wanted) const;

  std::string name_;
  std::optional<MappedFile> mapped_;
  Shards further_;  // the shards after the first, whose tensors are in tensors_, too
  std::uint32_t version_ = 0;
  std::vector<std::string> keys_;  // in file order
  std::unordered_map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;  // names live in tensors_
};

}  // namespace bl
