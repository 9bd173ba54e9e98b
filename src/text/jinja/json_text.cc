#include <algorithm>
#include <cmath>
#include <vector>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style, std::string& out)
      : rt_(rt), style_(style), out_(out) {}

  void write(const Value& value) {
    rt_.step();
    rt_.check_size(out_.size());
    switch (value.kind) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.integer != 0 ? "true" : "false";
        break;
      case Kind::kInt:
      case Kind::kBigInt:
        out_ += integer_text(rt_, value);
        break;
      case Kind::kFloat:
        out_ += number_text(value.number);
        break;
      case Kind::kString:
        write_string(value.str());
        break;
      case Kind::kTuple:
      case Kind::kList:
        write_list(value.list());
        break;
      case Kind::kDict:
        write_dict(*value.dict);
        break;
      default:
        rt_.fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return float_text(number);
  }

  void new_line() {
    if (!style_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
    rt_.check_size(out_.size());
  }

  void write_list(std::span<const Value> items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    out_.push_back(']');
  }

  std::string key_text(const Value& key) const {
    switch (key.kind) {
      case Kind::kString:
        return std::string(key.str());
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.integer != 0 ? "true" : "false";
      case Kind::kInt:
      case Kind::kBigInt:
        return integer_text(rt_, key);
      case Kind::kFloat:
        return number_text(key.number);
      default:
        rt_.fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(const Dict& dict) {
    if (dict.size == 0) {
      out_ += "{}";
      return;
    }
    std::vector<SortItem> entries;
    entries.reserve(dict.size);
    for (const DictEntry& entry : dict.list()) entries.push_back({entry.key, entry.value});
    if (style_.sort_keys) sort_items(rt_, entries, false);
    out_.push_back('{');
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      if (entries[i].key.is_string()) {
        write_string(entries[i].key.str());
      } else {
        write_string(key_text(entries[i].key));
      }
      out_ += style_.key_separator;
      write(entries[i].item);
    }
    --level_;
    new_line();
    out_.push_back('}');
  }

  void write_escaped(CodePoint c) {
    const auto unit = [this](char32_t value) {
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(value));
    };
    if (c.value < 0x10000) {
      unit(c.value);
    } else {
      unit(0xd800 + ((c.value - 0x10000) >> 10));
      unit(0xdc00 + ((c.value - 0x10000) & 0x3ff));
    }
  }

  void write_string(std::string_view text) {
    rt_.scan(text.size());
    out_.push_back('"');
    std::size_t plain = 0;  // start of a run that is copied unchanged
    for (std::size_t i = 0; i < text.size();) {
      const char c = text[i];
      const auto byte = static_cast<unsigned char>(c);
      const bool special = byte < 0x20 || c == '"' || c == '\\';
      if (!special && (byte < 0x80 || !style_.ensure_ascii)) {
        ++i;
        continue;
      }
      out_ += text.substr(plain, i - plain);
      const CodePoint point = code_point_at(text, i);
      constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
      constexpr std::string_view kLetters = "\"\\nrtfb";
      if (const std::size_t at = kShort.find(c); at != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[at]);
      } else {
        write_escaped(point);
      }
      i += point.size;
      plain = i;
    }
    out_ += text.substr(plain);
    out_.push_back('"');
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string& out_;
  int level_ = 0;
};

}  // namespace

void append_json(Runtime& rt, const Value& value, const JsonStyle& style, std::string& out) {
  JsonWriter(rt, style, out).write(value);
}

}  // namespace bl::jinja
