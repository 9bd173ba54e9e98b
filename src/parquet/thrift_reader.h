#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bl::parquet {

// The kinds of values in Thrift's compact protocol.
enum class ThriftType : std::uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

// Reads values of Thrift's compact protocol (thrift/doc/specs/thrift-compact-protocol.md), which
// Parquet's metadata is written in. Every function throws kInvalidFile where the bytes end too
// early, or a value is of another type than the one that is asked for.
class ThriftReader {
 public:
  // `what` names the bytes in errors.
  ThriftReader(std::span<const std::byte> bytes, std::string what);

  struct Field {
    std::int32_t id = 0;
    ThriftType type = ThriftType::kStop;
  };
  // Reads a struct: calls `read` for each field, which must read or skip its value.
  template <class Read>
  void read_struct(Read&& read) {
    enter();
    std::int32_t id = 0;
    for (Field field = next_field(id); field.type != ThriftType::kStop; field = next_field(id)) {
      read(field);
      id = field.id;
    }
    leave();
  }
  // Reads a list: calls `read` for each element with its type.
  template <class Read>
  void read_list(const Field& field, Read&& read) {
    const List list = begin_list(field.type);
    for (std::uint64_t i = 0; i < list.size; ++i) read(Field{0, list.type});
  }
  std::int64_t read_int(const Field& field);
  std::int32_t read_i32(const Field& field);
  bool read_bool(const Field& field) const;
  std::string_view read_text(const Field& field);
  void skip(const Field& field);

  std::size_t position() const { return at_; }
  [[noreturn]] void fail_damaged(const char* why) const;

 private:
  struct List {
    std::uint64_t size = 0;
    ThriftType type = ThriftType::kStop;
  };
  Field next_field(std::int32_t before);
  List begin_list(ThriftType type);
  std::uint8_t byte();
  std::uint64_t varint();
  std::int64_t zigzag();
  void advance(std::uint64_t bytes);
  void skip_element(ThriftType type);
  void skip_map();
  void enter();
  void leave() { --depth_; }

  std::span<const std::byte> bytes_;
  std::string what_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace bl::parquet
