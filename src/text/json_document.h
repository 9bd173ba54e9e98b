#pragma once
// Big JSON documents, with simdjson. It is a heavy header, so only few sources should include it.

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace bl {

// A parsed document and the memory behind it.
class JsonDocument {
 public:
  // Throws kInvalidFile, naming `name`, unless `text` is one whole JSON document.
  JsonDocument(std::string_view text, const std::string& name) {
    const simdjson::padded_string padded(text);
    const auto error = parser_.parse(padded).get(root_);
    if (error != simdjson::SUCCESS) {
      fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", name, simdjson::error_message(error));
    }
  }
  const simdjson::dom::element& root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

}  // namespace bl
