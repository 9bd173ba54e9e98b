#include "parquet/thrift_reader.h"

#include <utility>

#include "base/error.h"

namespace bl::parquet {
namespace {

constexpr int kMaxDepth = 32;  // Parquet's own structs need 8

ThriftType type_of(std::uint8_t nibble, const ThriftReader& reader) {
  if (nibble == 0 || nibble > static_cast<std::uint8_t>(ThriftType::kStruct)) {
    reader.fail_damaged("a value has an unknown type");
  }
  return static_cast<ThriftType>(nibble);
}

bool is_bool(ThriftType type) { return type == ThriftType::kTrue || type == ThriftType::kFalse; }

}  // namespace

ThriftReader::ThriftReader(std::span<const std::byte> bytes, std::string what)
    : bytes_(bytes), what_(std::move(what)) {}

void ThriftReader::fail_damaged(const char* why) const {
  fail(ErrorCode::kInvalidFile, "{} is damaged: {} (at byte {} of {})", what_, why, at_,
       bytes_.size());
}

std::uint8_t ThriftReader::byte() {
  if (at_ >= bytes_.size()) fail_damaged("it ends too early");
  return static_cast<std::uint8_t>(bytes_[at_++]);
}

void ThriftReader::advance(std::uint64_t bytes) {
  if (bytes > bytes_.size() - at_) fail_damaged("it ends too early");
  at_ += static_cast<std::size_t>(bytes);
}

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t next = byte();
    value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
    if (next < 0x80) return value;
  }
  fail_damaged("a number is too long");
}

std::int64_t ThriftReader::zigzag() {
  const std::uint64_t value = varint();
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

void ThriftReader::enter() {
  if (++depth_ > kMaxDepth) fail_damaged("it is nested too deeply");
}

ThriftReader::Field ThriftReader::next_field(std::int32_t before) {
  const std::uint8_t head = byte();
  if (head == 0) return {};
  const ThriftType type = type_of(head & 0x0f, *this);
  const std::int64_t id = head >> 4 != 0 ? before + (head >> 4) : zigzag();
  if (id < 0 || id > INT16_MAX) fail_damaged("the number of a field is out of range");
  return {static_cast<std::int32_t>(id), type};
}

ThriftReader::List ThriftReader::begin_list(ThriftType type) {
  if (type != ThriftType::kList && type != ThriftType::kSet) fail_damaged("a list is missing");
  const std::uint8_t head = byte();
  List list{static_cast<std::uint64_t>(head >> 4), type_of(head & 0x0f, *this)};
  if (list.size == 15) list.size = varint();
  // Every element takes a byte or more.
  if (list.size > bytes_.size() - at_) fail_damaged("a list is longer than the rest");
  return list;
}

std::int64_t ThriftReader::read_int(const Field& field) {
  if (field.type != ThriftType::kI16 && field.type != ThriftType::kI32 &&
      field.type != ThriftType::kI64) {
    fail_damaged("a number is missing");
  }
  return zigzag();
}

std::int32_t ThriftReader::read_i32(const Field& field) {
  const std::int64_t value = read_int(field);
  if (value < INT32_MIN || value > INT32_MAX) fail_damaged("a number is too large");
  return static_cast<std::int32_t>(value);
}

bool ThriftReader::read_bool(const Field& field) const {
  if (!is_bool(field.type)) fail_damaged("a truth value is missing");
  return field.type == ThriftType::kTrue;
}

std::string_view ThriftReader::read_text(const Field& field) {
  if (field.type != ThriftType::kBinary) fail_damaged("a text is missing");
  const std::uint64_t size = varint();
  const std::size_t begin = at_;
  advance(size);
  return {reinterpret_cast<const char*>(bytes_.data()) + begin, at_ - begin};
}

void ThriftReader::skip(const Field& field) {
  // The value of a truth value is in its type, except in lists and maps.
  if (!is_bool(field.type)) skip_element(field.type);
}

void ThriftReader::skip_element(ThriftType type) {
  switch (type) {
    case ThriftType::kStop:
      fail_damaged("a value has no type");
    case ThriftType::kTrue:
    case ThriftType::kFalse:
    case ThriftType::kByte:
      return advance(1);
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      varint();
      return;
    case ThriftType::kDouble:
      return advance(8);
    case ThriftType::kBinary:
      return advance(varint());
    case ThriftType::kList:
    case ThriftType::kSet: {
      enter();
      const List list = begin_list(type);
      for (std::uint64_t i = 0; i < list.size; ++i) skip_element(list.type);
      return leave();
    }
    case ThriftType::kMap:
      return skip_map();
    case ThriftType::kStruct:
      return read_struct([this](const Field& field) { skip(field); });
  }
}

void ThriftReader::skip_map() {
  enter();
  const std::uint64_t size = varint();
  if (size > bytes_.size() - at_) fail_damaged("a map is longer than the rest");
  if (size > 0) {
    const std::uint8_t types = byte();
    const ThriftType key = type_of(types >> 4, *this);
    const ThriftType value = type_of(types & 0x0f, *this);
    for (std::uint64_t i = 0; i < size; ++i) {
      skip_element(key);
      skip_element(value);
    }
  }
  leave();
}

}  // namespace bl::parquet
