#pragma once
#include <string>

#include "model/load_planner.h"
#include "nn/feed_forward.h"

namespace bl {

// Plans the dense (or shared) feed-forward layer below `at`. `place`: its block, and
// LoadTarget::index of the layer; the role is that of each task.
void plan_feed_forward(LoadPlanner& planner, const LoadTarget& place, const std::string& at,
                       const FeedForwardSpec& spec, const FeedForwardArch& arch);

}  // namespace bl
