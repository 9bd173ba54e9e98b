#include "format/safetensors_header.h"

#include <fmt/format.h>

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

namespace dom = simdjson::dom;

struct KnownDType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;
};

// Every dtype of the format. Those without a DType have a size here, so that files that merely
// contain them can be opened; such a tensor is refused when it is asked for.
constexpr std::array<KnownDType, 22> kDTypes{{
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},
    {"I16", 16, DType::kI16},
    {"U8", 8, DType::kU8},
    {"I8", 8, DType::kI8},
    {"F64", 64, std::nullopt},
    {"U64", 64, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U16", 16, std::nullopt},
    {"BOOL", 8, std::nullopt},
    {"C64", 64, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},
}};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, std::string_view what) : file_(file), what_(what) {}

  SafetensorsHeader read() {
    const std::string_view json = header_text();
    dom::parser parser;
    dom::element root;
    const auto error = parser.parse(json.data(), json.size()).get(root);
    if (error != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: the header is not valid JSON: {}", what_,
           simdjson::error_message(error));
    }
    dom::object object;
    if (root.get(object) != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: the header must be a JSON object", what_);
    }
    bool has_metadata = false;
    for (const auto& [name, value] : object) {
      if (name == "__metadata__") {
        if (std::exchange(has_metadata, true)) {
          fail(ErrorCode::kInvalidFile, "{}: __metadata__ occurs twice", what_);
        }
        read_metadata(value);
      } else {
        read_entry(name, value);
      }
    }
    check_names();
    check_ranges();
    return std::move(header_);
  }

 private:
  std::string_view header_text() {
    if (file_.size() < 8) {
      fail(ErrorCode::kInvalidFile,
           "{}: {} bytes are too few for a safetensors file, which starts with 8 bytes of header "
           "length",
           what_, file_.size());
    }
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) {
      length = length << 8 | std::to_integer<std::uint64_t>(file_[static_cast<std::size_t>(i)]);
    }
    const std::string_view start(reinterpret_cast<const char*>(file_.data()),
                                 std::min<std::size_t>(file_.size(), 64));
    if (start.starts_with("version https://git-lfs")) {
      fail(ErrorCode::kInvalidFile,
           "{} is a Git LFS pointer, not the tensors themselves; fetch them with `git lfs pull`",
           what_);
    }
    if (length > kMaxSafetensorsHeader) {
      fail(ErrorCode::kInvalidFile, "{}: header length {} is over the limit of {} bytes", what_,
           length, kMaxSafetensorsHeader);
    }
    if (length > file_.size() - 8) {
      fail(ErrorCode::kInvalidFile,
           "{}: header length {} reaches beyond the end of the file ({} bytes)", what_, length,
           file_.size());
    }
    data_begin_ = 8 + length;
    const auto* text = reinterpret_cast<const char*>(file_.data() + 8);
    if (length < 2 || text[0] != '{') {
      fail(ErrorCode::kInvalidFile, "{}: the header must be a JSON object starting with '{{'",
           what_);
    }
    return {text, static_cast<std::size_t>(length)};
  }

  void read_metadata(dom::element value) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: __metadata__ must be an object of strings", what_);
    }
    for (const auto& [key, text] : object) {
      std::string_view string;
      if (text.get(string) != simdjson::SUCCESS) {
        fail(ErrorCode::kInvalidFile, "{}: __metadata__ entry {} must be a string", what_,
             quoted_name(key));
      }
      if (!header_.metadata.emplace(key, string).second) {
        fail(ErrorCode::kInvalidFile, "{}: __metadata__ entry {} occurs twice", what_,
             quoted_name(key));
      }
    }
  }

  void read_entry(std::string_view name, dom::element value) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: its description must be a JSON object", what_,
           quoted_name(name));
    }
    SafetensorsEntry& entry = header_.entries.emplace_back();
    entry.name = name;
    std::uint64_t bits = 0;
    bool has_dtype = false, has_shape = false, has_offsets = false;
    for (const auto& [key, field] : object) {
      bool* seen = key == "dtype"          ? &has_dtype
                   : key == "shape"        ? &has_shape
                   : key == "data_offsets" ? &has_offsets
                                           : nullptr;
      if (seen == nullptr) continue;
      if (std::exchange(*seen, true)) {
        fail(ErrorCode::kInvalidFile, "{}: tensor {}: {} occurs twice", what_, quoted_name(name),
             key);
      }
      if (seen == &has_dtype) {
        bits = read_dtype(entry, field);
      } else if (seen == &has_shape) {
        read_shape(entry, field);
      } else {
        read_offsets(entry, field);
      }
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: there is no {}", what_, quoted_name(name),
           !has_dtype   ? "dtype"
           : !has_shape ? "shape"
                        : "data_offsets");
    }
    check_size(entry, bits);
  }

  std::uint64_t read_dtype(SafetensorsEntry& entry, dom::element field) {
    std::string_view text;
    if (field.get(text) != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: dtype must be a string", what_,
           quoted_name(entry.name));
    }
    const auto known = std::find_if(kDTypes.begin(), kDTypes.end(),
                                    [&](const KnownDType& d) { return d.name == text; });
    if (known == kDTypes.end()) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {} has the unknown dtype {}", what_,
           quoted_name(entry.name), quoted_name(text));
    }
    entry.dtype_name = known->name;
    entry.dtype = known->dtype;
    return known->bits;
  }

  std::uint64_t read_integer(const SafetensorsEntry& entry, dom::element value, const char* field) {
    std::uint64_t number = 0;
    if (value.get(number) != simdjson::SUCCESS ||
        number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: {} must hold whole numbers from 0 to 2^63 - 1",
           what_, quoted_name(entry.name), field);
    }
    return number;
  }

  void read_shape(SafetensorsEntry& entry, dom::element field) {
    dom::array sizes;
    if (field.get(sizes) != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: shape must be an array", what_,
           quoted_name(entry.name));
    }
    for (const dom::element size : sizes) {
      entry.shape.push_back(static_cast<std::int64_t>(read_integer(entry, size, "shape")));
    }
  }

  void read_offsets(SafetensorsEntry& entry, dom::element field) {
    dom::array offsets;
    if (field.get(offsets) != simdjson::SUCCESS || offsets.size() != 2) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {}: data_offsets must be an array of two numbers",
           what_, quoted_name(entry.name));
    }
    const std::uint64_t begin = read_integer(entry, offsets.at(0).value_unsafe(), "data_offsets");
    const std::uint64_t end = read_integer(entry, offsets.at(1).value_unsafe(), "data_offsets");
    const std::uint64_t available = file_.size() - data_begin_;
    if (begin > end || end > available) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {}: data_offsets [{}, {}] do not lie within the {} bytes of data that the "
           "file has",
           what_, quoted_name(entry.name), begin, end, available);
    }
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
  }

  void check_size(const SafetensorsEntry& entry, std::uint64_t bits) {
    // A zero anywhere makes the product zero, whatever the other sizes are.
    const bool empty = std::count(entry.shape.begin(), entry.shape.end(), 0) > 0;
    std::uint64_t total = empty ? 0 : bits;
    for (const std::int64_t size : entry.shape) {
      if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(size), &total)) {
        fail(ErrorCode::kInvalidFile, "{}: tensor {}: the size of shape [{}] overflows", what_,
             quoted_name(entry.name), fmt::join(entry.shape, ", "));
      }
    }
    if (total % 8 != 0 || total / 8 != entry.bytes()) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor {}: data_offsets span {} bytes, but {} [{}] takes {}", what_,
           quoted_name(entry.name), entry.bytes(), entry.dtype_name, fmt::join(entry.shape, ", "),
           (total + 7) / 8);
    }
  }

  void check_names() {
    auto& entries = header_.entries;
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(),
                           [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != entries.end()) {
      fail(ErrorCode::kInvalidFile, "{}: tensor {} occurs twice", what_, quoted_name(twice->name));
    }
  }

  void check_ranges() {
    std::vector<const SafetensorsEntry*> order;
    order.reserve(header_.entries.size());
    for (const SafetensorsEntry& entry : header_.entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::uint64_t position = data_begin_;
    for (const SafetensorsEntry* entry : order) {
      if (entry->begin != position) {
        fail(ErrorCode::kInvalidFile,
             "{}: tensor {}: its data begins at byte {} of the data section, {} the tensor before "
             "it, which ends at {}; there must be neither gap nor overlap",
             what_, quoted_name(entry->name), entry->begin - data_begin_,
             entry->begin < position ? "overlapping" : "leaving a gap after",
             position - data_begin_);
      }
      position = entry->end;
    }
    if (position != file_.size()) {
      fail(ErrorCode::kInvalidFile, "{}: the tensors cover {} bytes of data, but the file has {}",
           what_, position - data_begin_, file_.size() - data_begin_);
    }
  }

  std::span<const std::byte> file_;
  std::string_view what_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view what) {
  return HeaderReader(file, what).read();
}

}  // namespace bl
