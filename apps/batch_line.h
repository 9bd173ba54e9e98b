#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace bl {

// One line of a file of requests.
struct BatchLine {
  std::string custom_id{};       // empty: the line does not tell
  OrderedJson document{};        // with custom_id, url and an object as body
  std::optional<Error> error{};  // the line is no such request; then there is no document

  // Reads a line. `what` stands for it in errors. Whatever the line is, this does not throw: a
  // wrong line gets an answer of its own, which has the custom_id even if the JSON is damaged
  // behind it.
  static BatchLine read(const std::string& text, std::string_view what);
};

}  // namespace bl
