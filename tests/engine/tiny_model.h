#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "engine/model_session.h"
#include "engine/request.h"

namespace bl::test {

// For a model that is asked for ids alone, in a test: on two threads.
SessionOptions textless_session(const std::filesystem::path& model, const std::string& backend,
                                std::int64_t sequences);

// Greedy, so many tokens whatever they are.
Request greedy_request(std::vector<std::int32_t> prompt, std::int64_t max_tokens);

// A folder with a tiny random model of the plain gated kind: 2 blocks, hidden 32, 320 tokens, a
// byte-level tokenizer whose ids 256 … are <s>, </s>, <|user|>, <|bot|>, and a chat template.
// `config_extra` are further members of config.json, each ending in a comma.
std::filesystem::path make_tiny_model(const char* name, const std::string& config_extra = "");

// A folder with that model and biases in attention, all 0 but for one channel of each head's keys.
std::filesystem::path make_biased_model(const char* name, float key_bias);

// A folder with side layers for that model, of random weights: one layer, stretches of 5 tokens.
// `config_extra` as above.
std::filesystem::path make_tiny_draft(const char* name, const std::string& config_extra = "");

// The folders of the small models of every architecture ("hf-tiny") or format ("exl2-gptq"),
// sorted.
std::vector<std::filesystem::path> golden_models(const char* set = "hf-tiny");

}  // namespace bl::test
