#pragma once
#include <filesystem>

namespace bl::test {

// tests/data of the source tree: what the repository carries.
std::filesystem::path data_dir();

// Folder NAME (such as "hf-tiny"), unpacked once from tests/data/NAME.tar.xz into the build tree.
std::filesystem::path unpacked(const char* name);

// Material by others that is never committed (tokenizers, templates, the real model): the variable
// BITLOOM_DATA, or ../shared beside the source tree. Empty where there is none; such tests skip,
// saying so.
std::filesystem::path shared_dir();

// A fresh folder for what a test writes, removed and made anew at each call.
std::filesystem::path scratch_dir(const char* name);

}  // namespace bl::test
