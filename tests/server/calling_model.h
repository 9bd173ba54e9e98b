#pragma once
#include <memory>

#include "server/served_model.h"

namespace bl::test {

// A tiny random model that is served as "smollm2", with room for long prompts and a chat template
// that has reasoning and calls of tools. Its answers end by themselves before long, but its
// reasoning does not, as no chance makes the marker that closes it.
std::shared_ptr<server::ServedModel> make_calling_model(const char* folder);
// The same model, which never begins to reason where it may do something else, and whose JSON
// strings are short. So its calls are made within the few hundred tokens that clients allow.
std::shared_ptr<server::ServedModel> make_terse_calling_model(const char* folder);

}  // namespace bl::test
