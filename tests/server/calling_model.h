#pragma once
#include <memory>

#include "server/served_model.h"

namespace bl::test {

// A tiny random model that is served as "smollm2", with room for long prompts and a chat template
// that has reasoning and calls of tools. Its answers end by themselves before long.
std::shared_ptr<server::ServedModel> make_calling_model(const char* folder);

}  // namespace bl::test
