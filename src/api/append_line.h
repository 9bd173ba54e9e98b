#pragma once
#include <string>

namespace bl::openai {

// Appends a text on a line of its own. Parts of a message are joined this way, as chat templates
// take one text.
inline void append_line(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

}  // namespace bl::openai
