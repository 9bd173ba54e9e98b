#pragma once
#include <string_view>

namespace bl {

// A document of the repository that is embedded when the program is built (bl_embed_documents in
// CMake).
struct EmbeddedDocument {
  std::string_view name;  // file name without .json
  std::string_view text;
};

}  // namespace bl
