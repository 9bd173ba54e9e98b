#include "model/numbered_name.h"

namespace bl {

std::string with_number(std::string text, std::string_view mark, std::int64_t number) {
  const std::size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), std::to_string(number));
  return text;
}

}  // namespace bl
