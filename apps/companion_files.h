#pragma once
#include <filesystem>

#include "engine/open_model.h"

namespace bl {

// Copies what belongs to a model beside its weights and config.json (tokenizer, templates,
// defaults) to an existing folder.
void write_companions(const OpenedModel& base, const std::filesystem::path& folder);

}  // namespace bl
