#pragma once
#include <vector>

#include "engine/engine.h"

namespace bl::test {

// Submits the requests to an engine that does nothing else, so that it meets them all before the
// same step, however slow the thread is that submits them: a request before them holds that step
// up. Who shares a step with whom is then the same every time.
std::vector<RequestHandle> submit_together(Engine& engine, const std::vector<Request>& wanted);

}  // namespace bl::test
