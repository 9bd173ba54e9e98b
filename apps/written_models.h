#pragma once
#include <filesystem>

#include "base/pending_folder.h"
#include "convert_options.h"

namespace bl {

// Whether the model of `bits` is in `result` because the job has written it, with these options.
bool is_written(const ConvertOptions& options, const std::filesystem::path& result, double bits);

// Renames the folder of a model of `bits` to `result`, and notes in the job that it is written.
void put_result_in_place(const ConvertOptions& options, PendingFolder& pending,
                         const std::filesystem::path& result, double bits);

}  // namespace bl
