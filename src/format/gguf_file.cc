#include "format/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "format/gguf_parser.h"
#include "format/gguf_split.h"

namespace bl {

std::string_view name_of(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return "u8";
    case GgufValueType::kI8:
      return "i8";
    case GgufValueType::kU16:
      return "u16";
    case GgufValueType::kI16:
      return "i16";
    case GgufValueType::kU32:
      return "u32";
    case GgufValueType::kI32:
      return "i32";
    case GgufValueType::kF32:
      return "f32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kArray:
      return "array";
    case GgufValueType::kU64:
      return "u64";
    case GgufValueType::kI64:
      return "i64";
    case GgufValueType::kF64:
      return "f64";
  }
  return "unknown";
}

namespace {

bool is_integer(GgufValueType type) {
  return type != GgufValueType::kF32 && type != GgufValueType::kF64 &&
         type != GgufValueType::kBool && type != GgufValueType::kString &&
         type != GgufValueType::kArray;
}
bool is_float(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

template <class T>
T load(const std::byte* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}

// Element i of an array of integers. A u64 that is too large for i64 becomes the largest i64; no
// such value can be right.
std::int64_t integer_at(const GgufValue::Array& array, std::size_t i) {
  const std::byte* at = array.bytes.data() + i * gguf_value_bytes(array.element);
  switch (array.element) {
    case GgufValueType::kU8:
      return load<std::uint8_t>(at);
    case GgufValueType::kI8:
      return load<std::int8_t>(at);
    case GgufValueType::kU16:
      return load<std::uint16_t>(at);
    case GgufValueType::kI16:
      return load<std::int16_t>(at);
    case GgufValueType::kU32:
      return load<std::uint32_t>(at);
    case GgufValueType::kI32:
      return load<std::int32_t>(at);
    case GgufValueType::kI64:
      return load<std::int64_t>(at);
    default:
      return static_cast<std::int64_t>(std::min<std::uint64_t>(
          load<std::uint64_t>(at), std::numeric_limits<std::int64_t>::max()));
  }
}

}  // namespace

std::shared_ptr<GgufFile> GgufFile::map(const std::filesystem::path& path) {
  std::shared_ptr<GgufFile> file(new GgufFile);
  file->name_ = path.string();
  file->mapped_.emplace(path);
  GgufParser(*file, file->mapped_->bytes()).parse();
  return file;
}

std::shared_ptr<GgufFile> GgufFile::parse_one(std::span<const std::byte> bytes, std::string name) {
  std::shared_ptr<GgufFile> file(new GgufFile);
  file->name_ = std::move(name);
  GgufParser(*file, bytes).parse();
  return file;
}

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  Shards shards{map(path)};
  const auto count = shards[0]->integer("split.count").value_or(1);
  if (count <= 1) return shards[0];
  const std::vector<std::filesystem::path> paths = gguf_shards(path);
  if (std::cmp_not_equal(paths.size(), count)) {
    fail(ErrorCode::kInvalidFile,
         "{}: this is part {} of a model in {} files, whose names must end in "
         "-00001-of-{:05}.gguf and so on, or the others are not found; give the files such names",
         path.string(), shards[0]->integer("split.no").value_or(0) + 1, count, count);
  }
  std::string missing;
  for (const std::filesystem::path& other : paths) {
    std::error_code error;
    if (std::filesystem::exists(other, error)) continue;
    missing += (missing.empty() ? "" : ", ") + other.filename().string();
  }
  if (!missing.empty()) {
    fail(ErrorCode::kNotFound,
         "{}: of this model's {} files, these are missing: {}; fetch them into the same folder",
         path.string(), count, missing.size() > 400 ? missing.substr(0, 400) + " …" : missing);
  }
  const std::shared_ptr<GgufFile> given = std::move(shards[0]);
  shards.clear();
  for (const std::filesystem::path& shard : paths) {
    shards.push_back(shard.filename() == path.filename() ? given : map(shard));
  }
  return join(std::move(shards));
}

std::shared_ptr<const GgufFile> GgufFile::parse(const std::vector<Bytes>& shards) {
  BL_CHECK(!shards.empty());
  Shards files;
  for (const Bytes& shard : shards) files.push_back(parse_one(shard.bytes, shard.name));
  return join(std::move(files));
}

// Checks that a file says of itself that it is shard `number` of `count`.
void GgufFile::check_place(std::size_t number, std::size_t count) const {
  const std::int64_t says_count = integer("split.count").value_or(1);
  const std::int64_t says_number = integer("split.no").value_or(0);
  if (count == 1 && says_count <= 1) return;
  if (std::cmp_equal(says_count, count) && std::cmp_equal(says_number, number)) return;
  fail(ErrorCode::kInvalidFile,
       "{}: by its metadata this is part {} of a model in {} files, but it stands for part {} of "
       "{}; "
       "is it the right file?",
       name_, says_number + 1, says_count, number + 1, count);
}

// Adds the tensors of the other shards to the first, which keeps the metadata.
std::shared_ptr<const GgufFile> GgufFile::join(Shards shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) shards[i]->check_place(i, shards.size());
  std::shared_ptr<GgufFile> whole = shards[0];
  if (shards.size() == 1) return whole;
  std::vector<GgufTensor>& tensors = whole->tensors_;
  for (std::size_t i = 1; i < shards.size(); ++i) {
    tensors.insert(tensors.end(), shards[i]->tensors_.begin(), shards[i]->tensors_.end());
  }
  // The names have moved.
  whole->tensor_index_.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (whole->tensor_index_.emplace(tensors[i].name, i).second) continue;
    fail(ErrorCode::kInvalidFile, "{}: tensor {} occurs in two of the model's files", whole->name_,
         shown_gguf_text(tensors[i].name));
  }
  const auto total = whole->integer("split.tensors.count");
  if (total && std::cmp_not_equal(*total, tensors.size())) {
    fail(
        ErrorCode::kInvalidFile,
        "{}: split.tensors.count is {}, but the model's {} files hold {} tensors together; do they "
        "belong to one model?",
        whole->name_, *total, shards.size(), tensors.size());
  }
  whole->further_.assign(shards.begin() + 1, shards.end());
  return whole;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(std::string(key));
  return it == values_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::done_with(std::span<const std::byte> bytes) const {
  if (!mapped_ || bytes.empty()) return;
  const std::span<const std::byte> all = mapped_->bytes();
  const bool here = !std::less<>()(bytes.data(), all.data()) &&
                    std::less<>()(bytes.data(), all.data() + all.size());
  if (here) {
    mapped_->done_with(static_cast<std::size_t>(bytes.data() - all.data()), bytes.size());
    return;
  }
  for (const auto& shard : further_) shard->done_with(bytes);
}

void GgufFile::wrong_type(std::string_view key, std::string_view wanted) const {
  const GgufValue& value = *find(key);
  const auto* array = std::get_if<GgufValue::Array>(&value.value);
  fail(ErrorCode::kInvalidFile, "{}: metadata key {} is {}{}, but {} is expected", name_, key,
       array != nullptr ? "an array of " : "of type ",
       name_of(array != nullptr ? array->element : value.type), wanted);
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (text == nullptr) wrong_type(key, "a string");
  if (!is_valid_utf8(*text)) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is text that is not UTF-8", name_, key);
  }
  return *text;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(&value->value)) return *number;
  const auto* number = std::get_if<std::uint64_t>(&value->value);
  if (number == nullptr) wrong_type(key, "an integer");
  if (*number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is {}, which is out of range", name_, key,
         *number);
  }
  return static_cast<std::int64_t>(*number);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(&value->value)) {
    return static_cast<double>(*number);
  }
  if (const auto* number = std::get_if<std::uint64_t>(&value->value)) {
    return static_cast<double>(*number);
  }
  const auto* number = std::get_if<double>(&value->value);
  if (number == nullptr) wrong_type(key, "a number");
  if (!std::isfinite(*number)) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is {}, but a finite number is expected",
         name_, key, *number);
  }
  return *number;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (flag == nullptr) wrong_type(key, "a bool");
  return *flag;
}

bool GgufFile::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value != nullptr && std::holds_alternative<GgufValue::Array>(value->value);
}

std::optional<std::span<const std::string_view>> GgufFile::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<GgufValue::Array>(&value->value);
  if (array == nullptr || array->element != GgufValueType::kString) {
    wrong_type(key, "an array of strings");
  }
  return std::span<const std::string_view>(array->strings);
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<GgufValue::Array>(&value->value);
  if (array == nullptr || !is_integer(array->element)) wrong_type(key, "an array of integers");
  std::vector<std::int64_t> numbers(array->count);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = integer_at(*array, i);
  return numbers;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<GgufValue::Array>(&value->value);
  if (array == nullptr || !is_float(array->element)) wrong_type(key, "an array of floats");
  std::vector<double> numbers(array->count);
  const std::size_t bytes = gguf_value_bytes(array->element);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::byte* at = array->bytes.data() + i * bytes;
    numbers[i] = bytes == 4 ? static_cast<double>(load<float>(at)) : load<double>(at);
  }
  return numbers;
}

std::optional<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<GgufValue::Array>(&value->value);
  if (array == nullptr || (array->element != GgufValueType::kBool && !is_integer(array->element))) {
    wrong_type(key, "an array of bools");
  }
  std::vector<bool> flags(array->count);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    flags[i] = array->element == GgufValueType::kBool ? array->bytes[i] != std::byte{0}
                                                      : integer_at(*array, i) != 0;
  }
  return flags;
}

}  // namespace bl
