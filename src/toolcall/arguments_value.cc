#include "toolcall/arguments_value.h"

namespace bl {

ArgumentsValue::Status ArgumentsValue::push(char byte, std::string& out) {
  if (!begun_) {
    begun_ = true;
    quoted_ = byte == '"';
    if (quoted_) return Status::kMore;
  }
  if (!quoted_) {
    const JsonScanner::Status status = scanner_.push(byte);
    out.push_back(byte);
    if (status == JsonScanner::Status::kDone) return Status::kDone;
    return status == JsonScanner::Status::kMore ? Status::kMore : Status::kBroken;
  }
  const std::size_t before = out.size();
  const JsonStringReader::Status status = string_.push(byte, out);
  if (status == JsonStringReader::Status::kError) {
    // As it came: the quote would otherwise be missing, and the rest might pass for an object.
    if (empty_) out.insert(before, 1, '"');
    out.push_back(byte);
    return Status::kBroken;
  }
  for (std::size_t i = before; i < out.size(); ++i) {
    empty_ = false;
    if (inner_done_) {
      constexpr std::string_view kSpace = " \t\r\n";
      if (kSpace.find(out[i]) == kSpace.npos) return Status::kBroken;
      continue;
    }
    const JsonScanner::Status inner = scanner_.push(out[i]);
    if (inner == JsonScanner::Status::kDone) inner_done_ = true;
    if (inner == JsonScanner::Status::kError) return Status::kBroken;
  }
  if (status != JsonStringReader::Status::kDone) return Status::kMore;
  if (empty_) {
    out += "{}";
    return Status::kDone;
  }
  return inner_done_ ? Status::kDone : Status::kBroken;
}

}  // namespace bl
