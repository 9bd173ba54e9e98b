#include "text/text_pattern.h"

namespace bl {

TextPattern::TextPattern(const ComponentReader& reader, const char* key) {
  const ComponentReader pattern = reader.child(key);
  if (pattern.has("Regex")) {
    regex_.emplace(pattern.string("Regex"), pattern.where());
  } else if (pattern.has("String")) {
    *this = TextPattern(pattern.string("String"));
  } else {
    reader.wrong(key, R"({"String": …} or {"Regex": …})");
  }
}

TextPattern::TextPattern(std::string plain) : plain_(std::move(plain)) {
  if (plain_.empty()) regex_.emplace("", "empty pattern");
}

TextPattern::Walker::Walker(const TextPattern& pattern) : pattern_(pattern) {
  if (pattern.regex_) matcher_.emplace(*pattern.regex_);
}

void TextPattern::Walker::reset(std::string_view text) {
  text_ = text;
  from_ = 0;
  if (matcher_) matcher_->reset(text);
}

bool TextPattern::Walker::next(std::size_t& begin, std::size_t& end) {
  if (matcher_) return matcher_->next(begin, end);
  begin = text_.find(pattern_.plain_, from_);
  if (begin == std::string_view::npos) return false;
  end = from_ = begin + pattern_.plain_.size();
  return true;
}

std::string TextPattern::replace_all(std::string_view text, std::string_view content) const {
  if (text.empty()) return {};
  Walker walker(*this);
  walker.reset(text);
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  std::size_t used = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  while (walker.next(begin, end)) {
    out.append(text.substr(used, begin - used));
    out.append(content);
    used = end;
  }
  out.append(text.substr(used));
  return out;
}

}  // namespace bl
