#pragma once
#include "model/load_planner.h"
#include "model/model_spec.h"

namespace bl {

// Plans all tasks of a model: embedding, the blocks that run, final norm, head. `embed_host`: as
// LoadOptions has it. Throws as LoadPlanner does, and kInvalidArgument for a context beyond the
// positions that the model has learned.
void plan_model(LoadPlanner& planner, const ModelSpec& spec, bool embed_host);

}  // namespace bl
