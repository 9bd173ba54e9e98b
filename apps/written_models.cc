#include "written_models.h"

#include "base/json.h"
#include "convert/job_folder.h"

namespace bl {

namespace fs = std::filesystem;

namespace {

Json made_of(const ConvertOptions& options, double bits) {
  return {{"format", options.format}, {"rate", rate_name(bits)}, {"shard_size", options.shard_mib}};
}

}  // namespace

bool is_written(const ConvertOptions& options, const fs::path& result, double bits) {
  return !options.force && !options.no_resume &&
         is_noted(options.work, result, made_of(options, bits));
}

void put_result_in_place(const ConvertOptions& options, PendingFolder& pending,
                         const fs::path& result, double bits) {
  const fs::path files = pending.path();
  // A folder that --force replaces counts as written only when it is; elsewhere there is none yet,
  // so that a kill between the two leaves nothing that has to be done again.
  if (!options.force) note_written(options.work, result, files, made_of(options, bits));
  pending.put_in_place();
  if (options.force) note_written(options.work, result, result, made_of(options, bits));
}

}  // namespace bl
