#include "text/sentencepiece_proto.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/vocabulary.h"

namespace bl {
namespace {

// One field of a protobuf message.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;   // if it is a varint or a fixed-size number
  std::string_view content;  // if it is a string or a message
  bool has_content = false;

  bool flag() const { return value != 0; }
  float as_float() const {
    const auto bits = static_cast<std::uint32_t>(value);
    float number = 0;
    std::memcpy(&number, &bits, 4);
    return number;
  }
};

// Walks over the fields of a message (protobuf wire format, without groups).
class FieldReader {
 public:
  FieldReader(std::string_view message, const std::string& name) : left_(message), name_(name) {}

  bool next(Field& field) {
    if (left_.empty()) return false;
    const std::uint64_t key = varint();
    const std::uint64_t number = key >> 3;
    if (number == 0 || number > 0x1fffffff) refuse("a field number is out of range");
    field = Field{static_cast<std::uint32_t>(number), 0, {}, false};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 5:
        field.value = fixed(4);
        break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > left_.size()) refuse("a field is longer than the file");
        field.content = left_.substr(0, size);
        field.has_content = true;
        left_.remove_prefix(size);
        break;
      }
      default:
        refuse("a field has an unknown wire type");
    }
    return true;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: not a sentencepiece model: {}", name_, what);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) refuse("it ends within a number");
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number has more than 10 bytes");
  }
  std::uint64_t fixed(std::size_t size) {
    if (left_.size() < size) refuse("it ends within a number");
    std::uint64_t value = 0;
    std::memcpy(&value, left_.data(), size);
    left_.remove_prefix(size);
    return value;
  }

  std::string_view left_;
  const std::string& name_;
};

SentencePieceProto::Piece read_piece(std::string_view message, std::size_t index,
                                     const std::string& name) {
  SentencePieceProto::Piece piece;
  FieldReader reader(message, name);
  for (Field field; reader.next(field);) {
    if (field.number == 1) piece.text = field.content;
    if (field.number == 2) piece.score = field.as_float();
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) {
        fail(ErrorCode::kInvalidFile, "{}: piece {} has type {}; expected 1 to 6", name, index,
             field.value);
      }
      piece.type = static_cast<SentencePieceProto::Type>(field.value);
    }
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text)) {
    fail(ErrorCode::kInvalidFile, "{}: piece {} is {}", name, index,
         piece.text.empty() ? "empty" : "not UTF-8");
  }
  if (!std::isfinite(piece.score)) {
    fail(ErrorCode::kInvalidFile, "{}: piece {} has a score that is not finite", name, index);
  }
  return piece;
}

void read_trainer_spec(SentencePieceProto& proto, std::string_view message,
                       const std::string& name) {
  FieldReader reader(message, name);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) {
          fail(ErrorCode::kInvalidFile, "{}: the model type is {}; expected 1 to 4", name,
               field.value);
        }
        proto.kind = static_cast<SentencePieceProto::Kind>(field.value);
        break;
      case 24:
        proto.treat_whitespace_as_suffix = field.flag();
        break;
      case 35:
        proto.byte_fallback = field.flag();
        break;
      case 44:
        proto.unknown_surface = to_valid_utf8(field.content);
        break;
      case 45:
        proto.unk_piece = to_valid_utf8(field.content);
        break;
      case 46:
        proto.bos_piece = to_valid_utf8(field.content);
        break;
      case 47:
        proto.eos_piece = to_valid_utf8(field.content);
        break;
      case 48:
        proto.pad_piece = to_valid_utf8(field.content);
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(SentencePieceProto& proto, std::string_view message,
                          const std::string& name) {
  FieldReader reader(message, name);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case 2:
        proto.charsmap = field.content;
        break;
      case 3:
        proto.add_dummy_prefix = field.flag();
        break;
      case 4:
        proto.remove_extra_whitespaces = field.flag();
        break;
      case 5:
        proto.escape_whitespaces = field.flag();
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceProto parse_sentencepiece_proto(std::string_view bytes, const std::string& name) {
  SentencePieceProto proto;
  FieldReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    if (!field.has_content) continue;
    if (field.number == 1) {
      if (proto.pieces.size() > static_cast<std::size_t>(Vocabulary::kMaxId)) {
        fail(ErrorCode::kInvalidFile, "{}: there are more than {} pieces", name,
             Vocabulary::kMaxId + 1);
      }
      proto.pieces.push_back(read_piece(field.content, proto.pieces.size(), name));
    } else if (field.number == 2) {
      read_trainer_spec(proto, field.content, name);
    } else if (field.number == 3) {
      read_normalizer_spec(proto, field.content, name);
    }
  }
  if (proto.pieces.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: not a sentencepiece model: it has no pieces", name);
  }
  return proto;
}

}  // namespace bl
