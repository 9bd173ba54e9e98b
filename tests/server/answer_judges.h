#pragma once
#include "base/json.h"
#include "http_answer.h"

namespace bl::test {

// Checks the structure of a good answer to a request, as its client reads it: members and their
// types, the order of a stream's events up to the last one, a call where one was forced, JSON where
// the request asked for it.
void judge_answer(const std::string& path, const Json& body, const HttpAnswer& answer);
// Checks an error object: it has the shape of its route.
void judge_error(const std::string& path, const HttpAnswer& answer);

}  // namespace bl::test
