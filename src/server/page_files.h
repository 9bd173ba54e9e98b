#pragma once
#include <span>
#include <string_view>

namespace bl {

// A file that is embedded when the program is built (bl_embed_files in CMake).
struct EmbeddedFile {
  std::string_view name;  // without folders, such as "app.js"
  std::string_view bytes;
  std::string_view gzip;  // the same bytes, compressed
};

// The web page: the files of web/ and the libraries that it uses.
std::span<const EmbeddedFile> page_files();

}  // namespace bl
