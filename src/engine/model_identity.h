#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sip_hash.h"
#include "engine/open_model.h"
#include "model/model_spec.h"

namespace bl {

// Identifies a model, for cached pages that outlive the process: a hash over its config, over the
// architecture file that interprets it, and for each weight file over its size, its beginning
// (names, types, shapes and offsets of all tensors) and samples all over it. Hashing all weights
// would take as long as loading them; models that differ in no sample count as equal.
class ModelIdentity {
 public:
  // Remembers sizes and times of the model's files, without reading them. `order`: in which the
  // layers run, where it is not the usual one. `draft`: the side layers whose keys are in the same
  // pages; null: none. `arch`: ArchSpec::text.
  explicit ModelIdentity(const OpenedModel& model, std::span<const std::int32_t> order = {},
                         const OpenedModel* draft = nullptr, std::string_view arch = {});

  // Reads the files. Throws kInvalidFile where a file has been changed since, kIo.
  Hash128 hash() const;

 private:
  // The weight files of a model folder, or a .gguf file.
  void add_files(const std::filesystem::path& path);

  struct File {
    std::filesystem::path path;
    std::uint64_t size = 0;
    std::filesystem::file_time_type changed;
  };
  std::string config_;
  std::vector<File> files_;
};

// Identifies how positions rotate keys: in words for the reader, and a hash.
std::string rope_identity(const std::vector<RopeSpec>& ropes);

}  // namespace bl
