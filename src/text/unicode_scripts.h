#pragma once
#include <string>

namespace bl {

// A pattern (Regex) whose matches are runs of one Unicode script. Hiragana, Katakana and the
// prolonged sound mark count as Han; spaces and characters of no script continue any run. (The
// UnicodeScripts pre-tokenizer of the Rust package `tokenizers`.)
std::string script_run_pattern();

}  // namespace bl
