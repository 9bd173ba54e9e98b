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

// What tells one model from another for pages that outlive the process: its config, the
// architecture that says what that means, and of each file of weights the size, the beginning
// (names, types, shapes and places of all tensors) and samples all over it. Reading all of the
// weights would take as long as loading them; models that differ in no sample are taken for one.
class ModelIdentity {
 public:
  // Remembers the state of the model's files; reads none. `order`: of the layers, where it is not
  // the usual one. `draft`: the side layers whose keys are in the same pages; null: none. `arch`:
  // ArchSpec::text.
  explicit ModelIdentity(const OpenedModel& model, std::span<const std::int32_t> order = {},
                         const OpenedModel* draft = nullptr, std::string_view arch = {});

  // Throws kInvalidFile when a file has been replaced since, kIo.
  Hash128 hash() const;

 private:
  // A model folder's, or a .gguf file.
  void add_files(const std::filesystem::path& path);

  struct File {
    std::filesystem::path path;
    std::uint64_t size = 0;
    std::filesystem::file_time_type changed;
  };
  std::string config_;
  std::vector<File> files_;
};

// What decides how positions turn keys, in words and a hash.
std::string rope_identity(const std::vector<RopeSpec>& ropes);

}  // namespace bl
