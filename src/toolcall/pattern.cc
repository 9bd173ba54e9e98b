#include "toolcall/pattern.h"

#include <utility>

#include "base/error.h"

namespace bl {
namespace {

using Kind = Pattern::Part::Kind;

constexpr std::pair<std::string_view, Kind> kCaptures[] = {
    {"{name}", Kind::kName}, {"{key}", Kind::kKey}, {"{id}", Kind::kId}, {"{type}", Kind::kType}};

constexpr std::pair<std::string_view, CallForm> kForms[] = {
    {"{object}", CallForm::kObject},         {"{arguments}", CallForm::kArguments},
    {"{parameters}", CallForm::kParameters}, {"{elements}", CallForm::kElements},
    {"{python}", CallForm::kPython},         {"{braces}", CallForm::kBraces}};

bool is_pattern_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace

Pattern::Pattern(std::string_view source) {
  const std::string whole(source);
  while (!source.empty()) {
    if (form_ != CallForm::kNone) {
      fail(ErrorCode::kInvalidFile, "the pattern \"{}\" goes on behind its form", whole);
    }
    bool placed = false;
    for (const auto& [text, kind] : kCaptures) {
      if (placed || !source.starts_with(text)) continue;
      add(kind, {});
      source.remove_prefix(text.size());
      placed = true;
    }
    for (const auto& [text, form] : kForms) {
      if (placed || !source.starts_with(text)) continue;
      form_ = form;
      source.remove_prefix(text.size());
      placed = true;
    }
    if (placed) continue;
    add(source.front() == '~' ? Part::Kind::kSpace : Part::Kind::kText, source.substr(0, 1));
    source.remove_prefix(1);
  }
  if (parts_.empty() && form_ == CallForm::kNone) {
    fail(ErrorCode::kInvalidFile, "a pattern is empty");
  }
}

void Pattern::add(Part::Kind kind, std::string_view text) {
  if (kind == Part::Kind::kText && !parts_.empty() && parts_.back().kind == kind) {
    parts_.back().text += text;
    return;
  }
  parts_.push_back({kind, std::string(kind == Part::Kind::kText ? text : "")});
}

char Pattern::first() const {
  if (parts_.empty() || parts_.front().kind != Part::Kind::kText) return '\0';
  return parts_.front().text.front();
}

std::string Pattern::opening() const {
  return first() == '\0' ? std::string() : parts_.front().text;
}

PatternMatch::Status PatternMatch::push(char byte) {
  while (part_ < pattern_->parts().size()) {
    const Pattern::Part& part = pattern_->parts()[part_];
    if (part.kind == Kind::kText) {
      if (byte != part.text[offset_]) return Status::kFailed;
      if (++offset_ < part.text.size()) return Status::kMore;
      return next_part();
    }
    if (part.kind == Kind::kSpace) {
      if (is_pattern_space(byte)) return Status::kMore;
    } else if (takes(part.kind, byte)) {
      std::string& text = capture(part.kind);
      if (text.size() >= kMaxCapture) return Status::kFailed;
      text.push_back(byte);
      return Status::kMore;
    } else if (capture(part.kind).empty()) {
      return Status::kFailed;
    }
    ++part_;
  }
  return pattern_->form() == CallForm::kNone ? Status::kFailed : Status::kForm;
}

PatternMatch::Status PatternMatch::next_part() {
  ++part_;
  offset_ = 0;
  const bool last = part_ == pattern_->parts().size();
  return last && pattern_->form() == CallForm::kNone ? Status::kMatched : Status::kMore;
}

bool PatternMatch::takes(Kind kind, char byte) const {
  if (kind == Kind::kName) {
    constexpr std::string_view kNever = "<>\"'`{}[](),;=|\\";
    return static_cast<unsigned char>(byte) > 0x20 && kNever.find(byte) == kNever.npos;
  }
  if (byte == '\n') return false;
  const auto& parts = pattern_->parts();
  std::size_t next = part_ + 1;
  if (next < parts.size() && parts[next].kind == Kind::kSpace) {
    if (is_pattern_space(byte)) return false;
    ++next;
  }
  return next == parts.size() || parts[next].kind != Kind::kText ||
         byte != parts[next].text.front();
}

std::string& PatternMatch::capture(Kind kind) {
  return kind == Kind::kName ? name_ : kind == Kind::kKey ? key_ : kind == Kind::kId ? id_ : type_;
}

}  // namespace bl
