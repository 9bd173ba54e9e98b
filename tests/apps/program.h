#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace bl::test {

struct ProgramResult {
  int status = 0;  // exit status, or 128 + signal
  std::string out;
  std::string err;
};

// Runs the built binary with these arguments and this standard input.
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "");

// A folder with a tiny random model of the plain gated kind: 2 blocks, hidden 32, 320 tokens, a
// byte-level tokenizer whose ids 256 … are <s>, </s>, <|user|>, <|bot|>, and a chat template.
// `config_extra` are further lines of config.json, each ending in a comma.
std::filesystem::path make_tiny_model(const char* name, const std::string& config_extra = "");

}  // namespace bl::test
