#pragma once
#include <string>

namespace bl {

// A pattern (Regex) whose matches are runs of one Unicode script. Hiragana, Katakana and the
// prolonged sound mark count as Han; a space and characters of no script belong to any run.
std::string script_run_pattern();

}  // namespace bl
