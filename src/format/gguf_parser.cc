#include "format/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 65535;  // the specification's limit
constexpr std::uint32_t kMaxRank = 4;

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

// The fewest bytes that one entry of each list can take. A larger count cannot be true.
constexpr std::uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

}  // namespace

std::string shown_gguf_text(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c < ' ' || c > '~' ? '?' : c;
  if (text.size() > 80) out += "…";
  return out;
}

std::size_t gguf_value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

void GgufParser::need(std::uint64_t bytes, std::string_view what) const {
  if (bytes > left()) {
    fail(ErrorCode::kInvalidFile,
         "{}: the file ends within {} (byte {}: {} bytes needed, {} left); is it complete?",
         file_.name_, what, at_, bytes, left());
  }
}

template <class T>
T GgufParser::read(std::string_view what) {
  need(sizeof(T), what);
  T value;
  std::memcpy(&value, bytes_.data() + at_, sizeof value);
  at_ += sizeof value;
  return value;
}

std::string_view GgufParser::read_text(std::string_view what) {
  const auto size = read<std::uint64_t>(what);
  need(size, what);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_,
                              static_cast<std::size_t>(size));
  at_ += static_cast<std::size_t>(size);
  return text;
}

GgufValueType GgufParser::read_value_type(std::string_view key) {
  const auto number = read<std::uint32_t>("the type of a metadata value");
  if (number > static_cast<std::uint32_t>(GgufValueType::kF64)) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} has value type {}, but only 0 to 12 exist",
         file_.name_, shown_gguf_text(key), number);
  }
  return static_cast<GgufValueType>(number);
}

GgufValue::Array GgufParser::read_array(std::string_view key) {
  GgufValue::Array array;
  array.element = read_value_type(key);
  array.count = read<std::uint64_t>("the length of an array");
  if (array.element == GgufValueType::kArray) {
    fail(ErrorCode::kUnsupported,
         "{}: metadata key {} is an array of arrays, which is not supported", file_.name_,
         shown_gguf_text(key));
  }
  const bool texts = array.element == GgufValueType::kString;
  const std::uint64_t least = texts ? 8 : gguf_value_bytes(array.element);
  std::uint64_t bytes = 0;
  if (!multiply(array.count, least, bytes) || bytes > left()) {
    fail(ErrorCode::kInvalidFile,
         "{}: metadata key {} claims {} elements of type {}, but only {} bytes are left",
         file_.name_, shown_gguf_text(key), array.count, name_of(array.element), left());
  }
  if (texts) {
    array.strings.reserve(static_cast<std::size_t>(array.count));
    for (std::uint64_t i = 0; i < array.count; ++i) {
      array.strings.push_back(read_text("a string of an array"));
    }
    return array;
  }
  array.bytes = bytes_.subspan(at_, static_cast<std::size_t>(bytes));
  at_ += static_cast<std::size_t>(bytes);
  return array;
}

GgufValue GgufParser::read_value(std::string_view key) {
  constexpr std::string_view kWhat = "a metadata value";
  GgufValue value;
  value.type = read_value_type(key);
  switch (value.type) {
    case GgufValueType::kU8:
      value.value = std::uint64_t{read<std::uint8_t>(kWhat)};
      break;
    case GgufValueType::kI8:
      value.value = std::int64_t{read<std::int8_t>(kWhat)};
      break;
    case GgufValueType::kU16:
      value.value = std::uint64_t{read<std::uint16_t>(kWhat)};
      break;
    case GgufValueType::kI16:
      value.value = std::int64_t{read<std::int16_t>(kWhat)};
      break;
    case GgufValueType::kU32:
      value.value = std::uint64_t{read<std::uint32_t>(kWhat)};
      break;
    case GgufValueType::kI32:
      value.value = std::int64_t{read<std::int32_t>(kWhat)};
      break;
    case GgufValueType::kU64:
      value.value = read<std::uint64_t>(kWhat);
      break;
    case GgufValueType::kI64:
      value.value = read<std::int64_t>(kWhat);
      break;
    case GgufValueType::kF32:
      value.value = static_cast<double>(read<float>(kWhat));
      break;
    case GgufValueType::kF64:
      value.value = read<double>(kWhat);
      break;
    case GgufValueType::kBool:
      value.value = read<std::uint8_t>(kWhat) != 0;
      break;
    case GgufValueType::kString:
      value.value = read_text(kWhat);
      break;
    case GgufValueType::kArray:
      value.value = read_array(key);
      break;
  }
  return value;
}

void GgufParser::read_metadata() {
  const std::string_view key = read_text("a metadata key");
  if (key.empty() || key.size() > kMaxKeyBytes) {
    fail(ErrorCode::kInvalidFile,
         "{}: there is a metadata key of {} bytes at byte {}; 1 to {} are allowed", file_.name_,
         key.size(), at_ - key.size(), kMaxKeyBytes);
  }
  GgufValue value = read_value(key);
  if (!file_.values_.emplace(std::string(key), std::move(value)).second) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} occurs twice", file_.name_,
         shown_gguf_text(key));
  }
  file_.keys_.emplace_back(key);
}

Shape GgufParser::read_shape(const std::string& tensor, GgufTensor& out, std::uint64_t& bytes) {
  const auto rank = read<std::uint32_t>("a tensor's number of dimensions");
  if (rank == 0 || rank > kMaxRank) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} has {} dimensions; 1 to {} are allowed",
         file_.name_, tensor, rank, kMaxRank);
  }
  std::uint64_t sizes[kMaxRank] = {};
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    sizes[i] = read<std::uint64_t>("a tensor's dimensions");
    if (sizes[i] == 0) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: dimension {} is zero", file_.name_, tensor, i);
    }
    if (!multiply(elements, sizes[i], elements) || elements > (std::uint64_t{1} << 60)) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {}: dimension {} is {}, which is too large for any file", file_.name_,
           tensor, i, sizes[i]);
    }
  }
  const auto number = read<std::uint32_t>("a tensor's type");
  const GgufTypeInfo* type = find_gguf_type(number);
  if (type == nullptr) {
    fail(ErrorCode::kUnsupported,
         "{}: tensor {} has the unknown element type {}; bitloom can read {}", file_.name_, tensor,
         number, readable_gguf_types());
  }
  const auto group = static_cast<std::uint64_t>(type->group_elements);
  if (sizes[0] % group != 0) {
    fail(ErrorCode::kInvalidFile,
         "{}: tensor {}: rows of {} elements are no multiple of the {} elements in a group of {}",
         file_.name_, tensor, sizes[0], group, type->name);
  }
  if (!multiply(elements / group, static_cast<std::uint64_t>(type->group_bytes), bytes)) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} is too large for any file", file_.name_, tensor);
  }
  out.type = static_cast<GgufType>(number);
  Shape shape;
  for (std::uint32_t i = rank; i-- > 0;) shape.append(static_cast<std::int64_t>(sizes[i]));
  return shape;
}

GgufParser::Entry GgufParser::read_tensor() {
  Entry entry;
  GgufTensor tensor;
  const std::string_view name = read_text("a tensor's name");
  if (name.empty() || name.size() > kMaxKeyBytes) {
    fail(ErrorCode::kInvalidFile,
         "{}: there is a tensor name of {} bytes at byte {}; 1 to {} are allowed", file_.name_,
         name.size(), at_ - name.size(), kMaxKeyBytes);
  }
  tensor.name = name;
  tensor.shape = read_shape(shown_gguf_text(name), tensor, entry.bytes);
  entry.offset = read<std::uint64_t>("a tensor's offset");
  file_.tensors_.push_back(std::move(tensor));
  return entry;
}

std::uint64_t GgufParser::alignment() const {
  const GgufValue* value = file_.find("general.alignment");
  if (value == nullptr) return 32;
  if (value->type != GgufValueType::kU32) file_.wrong_type("general.alignment", "a u32");
  const std::uint64_t alignment = std::get<std::uint64_t>(value->value);
  if (!std::has_single_bit(alignment)) {
    fail(ErrorCode::kInvalidFile, "{}: general.alignment is {}, but a power of two is expected",
         file_.name_, alignment);
  }
  return alignment;
}

void GgufParser::place_tensors(std::span<const Entry> entries) {
  if (entries.empty()) return;
  const std::uint64_t align = alignment();
  const std::uint64_t begin = (std::uint64_t{at_} + align - 1) / align * align;
  const std::uint64_t size = begin > bytes_.size() ? 0 : bytes_.size() - begin;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    GgufTensor& tensor = file_.tensors_[i];
    if (entry.offset % align != 0) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {}: offset {} is no multiple of {}, the file's alignment", file_.name_,
           shown_gguf_text(tensor.name), entry.offset, align);
    }
    if (entry.bytes > size || entry.offset > size - entry.bytes) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {} takes {} bytes at offset {}, but the data section has {}; is the file "
           "complete?",
           file_.name_, shown_gguf_text(tensor.name), entry.bytes, entry.offset, size);
    }
    tensor.bytes = bytes_.subspan(static_cast<std::size_t>(begin + entry.offset),
                                  static_cast<std::size_t>(entry.bytes));
    if (!file_.tensor_index_.emplace(tensor.name, i).second) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {} occurs twice", file_.name_,
           shown_gguf_text(tensor.name));
    }
  }
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return entries[a].offset < entries[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Entry& before = entries[order[i - 1]];
    if (before.offset + before.bytes > entries[order[i]].offset) {
      fail(ErrorCode::kInvalidFile, "{}: tensors {} and {} overlap", file_.name_,
           shown_gguf_text(file_.tensors_[order[i - 1]].name),
           shown_gguf_text(file_.tensors_[order[i]].name));
    }
  }
}

void GgufParser::parse() {
  need(4, "the first four bytes");
  if (std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    fail(ErrorCode::kInvalidFile, "{}: not a GGUF file (it does not begin with \"GGUF\")",
         file_.name_);
  }
  at_ = 4;
  file_.version_ = read<std::uint32_t>("the version");
  if (file_.version_ != 0 && (file_.version_ & 0xffffu) == 0) {
    fail(ErrorCode::kUnsupported,
         "{}: this is a big-endian GGUF file; only little-endian ones can be read", file_.name_);
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    fail(ErrorCode::kUnsupported, "{}: this is GGUF version {}; only versions 2 and 3 can be read",
         file_.name_, file_.version_);
  }
  const auto tensors = read<std::uint64_t>("the number of tensors");
  const auto keys = read<std::uint64_t>("the number of metadata keys");
  if (tensors > left() / kLeastTensorBytes) {
    fail(ErrorCode::kInvalidFile,
         "{}: the header claims {} tensors, too many for the {} bytes that are left", file_.name_,
         tensors, left());
  }
  if (keys > left() / kLeastKeyBytes) {
    fail(ErrorCode::kInvalidFile,
         "{}: the header claims {} metadata keys, too many for the {} bytes that are left",
         file_.name_, keys, left());
  }
  for (std::uint64_t i = 0; i < keys; ++i) read_metadata();
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < tensors; ++i) entries.push_back(read_tensor());
  place_tensors(entries);
}

}  // namespace bl
