#include "text/jinja/text_form.h"

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/scope.h"

namespace bl::jinja {
namespace {

// Ends the printing of cycles, such as a namespace in a list in the same namespace.
constexpr int kMaxReprDepth = 1000;

void append_quoted(Runtime& rt, std::string_view text, std::string& out) {
  rt.scan(text.size());
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_python_printable(c.value)) {
      out += text.substr(i, c.size);
    } else if (c.value < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c.value));
    } else if (c.value < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c.value));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c.value));
    }
    i += c.size;
  }
  out.push_back(quote);
}

class ReprWriter {
 public:
  ReprWriter(Runtime& rt, std::string& out) : rt_(rt), out_(out) {}

  void write(const Value& value) {
    rt_.step();
    rt_.check_size(out_.size());
    if (depth_ > kMaxReprDepth) rt_.limit("a value holds itself and cannot be printed");
    ++depth_;
    write_value(value);
    --depth_;
  }

 private:
  void write_items(std::span<const Value> items, char open, char close) {
    out_.push_back(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(items[i]);
    }
    if (open == '(' && items.size() == 1) out_.push_back(',');
    out_.push_back(close);
  }

  void write_dict(const Dict& dict) {
    out_.push_back('{');
    bool first = true;
    for (const DictEntry& entry : dict.list()) {
      if (!first) out_ += ", ";
      first = false;
      write(entry.key);
      out_ += ": ";
      write(entry.value);
    }
    out_.push_back('}');
  }

  void write_namespace(const Namespace& space) {
    out_ += "<Namespace {";
    // Walks by index, because printing does not change the entries but their storage is shared.
    for (std::size_t i = 0; i < space.entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      append_quoted(rt_, space.entries[i].name, out_);
      out_ += ": ";
      write(space.entries[i].value);
    }
    out_ += "}>";
  }

  void write_value(const Value& value) {
    switch (value.kind) {
      case Kind::kMissing:
      case Kind::kUndefined:
        out_ += "Undefined";
        break;
      case Kind::kNone:
        out_ += "None";
        break;
      case Kind::kBool:
        out_ += value.integer != 0 ? "True" : "False";
        break;
      case Kind::kInt:
      case Kind::kBigInt:
        out_ += integer_text(rt_, value);
        break;
      case Kind::kFloat:
        out_ += float_text(value.number);
        break;
      case Kind::kString:
        if (value.is_markup()) out_ += "Markup(";
        append_quoted(rt_, value.str(), out_);
        if (value.is_markup()) out_ += ")";
        break;
      case Kind::kTuple:
        write_items(value.list(), '(', ')');
        break;
      case Kind::kList:
        write_items(value.list(), '[', ']');
        break;
      case Kind::kDict:
        write_dict(*value.dict);
        break;
      case Kind::kDictView:
        out_ += type_name(value);
        out_ += "(";
        write_items(view_items(rt_, *value.view), '[', ']');
        out_ += ")";
        break;
      case Kind::kNamespace:
        write_namespace(*value.space);
        break;
      default:
        write_object(value);
    }
  }

  void write_object(const Value& value) {
    switch (value.kind) {
      case Kind::kRange: {
        const Range& range = *value.range;
        out_ += fmt::format("range({}, {}", range.start, range.stop);
        if (range.step != 1) out_ += fmt::format(", {}", range.step);
        out_ += ")";
        break;
      }
      case Kind::kMacro:
        out_ += fmt::format("<Macro '{}'>", value.macro->definition->text_name);
        break;
      case Kind::kLoop:
        out_ +=
            fmt::format("<LoopContext {}/{}>", value.loop->index0 + 1, value.loop->get_length());
        break;
      default:
        out_ += fmt::format("<{} object>", type_name(value));
    }
  }

  Runtime& rt_;
  std::string& out_;
  int depth_ = 0;
};

}  // namespace

void append_repr(Runtime& rt, const Value& value, std::string& out) {
  ReprWriter(rt, out).write(value);
}

void append_str(Runtime& rt, const Value& value, std::string& out) {
  if (value.is_string()) {
    rt.check_size(out.size() + value.size);
    rt.scan(value.size);
    out += value.str();
  } else if (!value.is_undefined()) {
    append_repr(rt, value, out);
  }
}

Value str_of(Runtime& rt, const Value& value) {
  if (value.is_string()) return value.is_markup() ? value.as_markup(false) : value;
  std::string text;
  append_str(rt, value, text);
  return rt.string(text);
}

Value soft_str(Runtime& rt, const Value& value) {
  return value.is_string() ? value : str_of(rt, value);
}

Value repr_of(Runtime& rt, const Value& value) {
  std::string text;
  append_repr(rt, value, text);
  return rt.string(text);
}

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
}

Value escape_html(Runtime& rt, const Value& value) {
  if (value.is_markup()) return value;
  const Value text = str_of(rt, value);
  rt.scan(text.size);
  std::string out;
  append_escaped(text.str(), out);
  return rt.string(out).as_markup(true);
}

}  // namespace bl::jinja
