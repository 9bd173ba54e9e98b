#pragma once
#include "engine/choice.h"

namespace bl {

// All choices of a request with best_of are over: the best become its answers, in the order of
// their score.
void give_best_answers(OpenRequest& open);

}  // namespace bl
