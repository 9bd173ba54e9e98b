#include "toolcall/parameter_value.h"

#include "base/check.h"
#include "toolcall/bare_value.h"
#include "toolcall/json_string.h"

namespace bl {
namespace {

constexpr std::string_view kCdataOpen = "<![CDATA[";
constexpr std::string_view kCdataClose = "]]>";

}  // namespace

TextFinder::TextFinder(std::string_view text) : text_(text), back_(text.size(), 0) {
  BL_CHECK(!text.empty());
  for (std::size_t i = 1, length = 0; i < text_.size(); ++i) {
    while (length > 0 && text_[i] != text_[length]) length = back_[length - 1];
    if (text_[i] == text_[length]) ++length;
    back_[i] = length;
  }
}

bool TextFinder::push(char byte, std::size_t& released) {
  const std::size_t before = matched_;
  while (matched_ > 0 && byte != text_[matched_]) matched_ = back_[matched_ - 1];
  if (byte == text_[matched_]) ++matched_;
  released = before + 1 - matched_;
  if (matched_ < text_.size()) return false;
  matched_ = 0;
  return true;
}

ParameterValue::ParameterValue(const Syntax& syntax, const ValueType& type)
    : close_(syntax.close),
      cdata_(syntax.cdata),
      lines_(syntax.lines),
      type_(type),
      streams_(type.string.value_or(type.schema.only_string())) {}

ParameterValue::Status ParameterValue::push(char byte, std::string& out) {
  ++consumed_;
  return cdata_ ? push_cdata(byte, out) : push_value(byte, out);
}

ParameterValue::Status ParameterValue::push_value(char byte, std::string& out) {
  return streams_ ? push_string(byte, out) : push_whole(byte, out);
}

ParameterValue::Status ParameterValue::push_cdata(char byte, std::string& out) {
  if (byte == kCdataOpen[cdata_matched_]) {
    if (++cdata_matched_ < kCdataOpen.size()) return Status::kMore;
    cdata_ = false;
    streams_ = true;
    close_ = TextFinder(std::string(kCdataClose) + close_.text());
    return Status::kMore;
  }
  cdata_ = false;
  for (std::size_t i = 0; i < cdata_matched_; ++i) {
    // A closing tag cannot end here: it does not begin as a CDATA section does.
    push_value(kCdataOpen[i], out);
  }
  return push_value(byte, out);
}

ParameterValue::Status ParameterValue::push_string(char byte, std::string& out) {
  if (!begun_) out.push_back('"');
  begun_ = true;
  const std::size_t before = close_.pending();
  std::size_t released = 0;
  if (close_.push(byte, released)) {
    out.push_back('"');
    return Status::kDone;
  }
  // The released bytes are the first of the `before` that were pending, and then this one.
  for (std::size_t i = 0; i < released; ++i) write(i < before ? close_.text()[i] : byte, out);
  return Status::kMore;
}

void ParameterValue::write(char byte, std::string& out) {
  if (lines_) {
    const bool skip = first_ && byte == '\n';
    first_ = false;
    if (skip) return;
    if (line_end_) append_json_byte('\n', out);
    line_end_ = byte == '\n';
    if (line_end_) return;
  }
  append_json_byte(byte, out);
}

ParameterValue::Status ParameterValue::push_whole(char byte, std::string& out) {
  text_.push_back(byte);
  scan(byte);
  std::size_t released = 0;
  const bool closed = close_.push(byte, released);
  const bool in_json = json_ && !json_done_ && scanner_.in_string();
  if (closed && in_json) {
    if (first_close_ == 0) first_close_ = text_.size();
    return Status::kMore;
  }
  if (closed && first_close_ == 0) {
    write_whole(std::string_view(text_).substr(0, text_.size() - close_.text().size()), out);
    return Status::kDone;
  }
  if (first_close_ == 0) return Status::kMore;
  if (closed && json_done_) {
    write_whole(std::string_view(text_).substr(0, text_.size() - close_.text().size()), out);
    return Status::kDone;
  }
  if (json_) return Status::kMore;
  // It was no JSON after all, so the first closing tag was the end of the value.
  write_whole(std::string_view(text_).substr(0, first_close_ - close_.text().size()), out);
  consumed_ = first_close_;
  return Status::kDoneEarlier;
}

void ParameterValue::scan(char byte) {
  if (!json_ || json_done_) return;
  switch (scanner_.push(byte)) {
    case JsonScanner::Status::kDone:
      json_done_ = true;
      return;
    case JsonScanner::Status::kMore:
      return;
    default:
      json_ = false;
  }
}

void ParameterValue::write_whole(std::string_view text, std::string& out) {
  if (lines_ && text.starts_with('\n')) text.remove_prefix(1);
  if (lines_ && text.ends_with('\n')) text.remove_suffix(1);
  const bool json = type_.string.has_value();
  out += json ? json_or_string(text) : bare_value_json(text, type_.schema);
}

void ParameterValue::finish(std::string& out) {
  for (std::size_t i = 0; cdata_ && i < cdata_matched_; ++i) push_value(kCdataOpen[i], out);
  if (!streams_) {
    append_json_quoted(text_, out);
    out.pop_back();
    return;
  }
  if (!begun_) out.push_back('"');
  for (std::size_t i = 0; i < close_.pending(); ++i) append_json_byte(close_.text()[i], out);
}

}  // namespace bl
