#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors_file.h"

namespace bl {

// All tensors of a model folder, whatever its files are called.
//
// An index JSON is followed where it is true: then exactly the shards that it names are opened, and
// a missing shard, or a tensor that is not where the index says, is an error. EXL2 folders carry
// the stale index of the source model; they are recognised by their headers (a tensor *.q_weight),
// and in them every *.safetensors file counts. A tensor name that occurs in two files is refused.
class SafetensorsFolder : public TensorSource {
 public:
  // Opens a folder, or one .safetensors file. Throws kNotFound where there are no such files, kIo
  // where they cannot be read, kInvalidFile where they break the format.
  explicit SafetensorsFolder(const std::filesystem::path& path);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

 private:
  void open_folder(const std::filesystem::path& folder);
  void index_names();
  const SafetensorsFile* file_of(std::string_view name) const;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  struct Place {
    std::string_view name;  // owned by the file's entry
    const SafetensorsFile* file;
  };
  std::vector<Place> places_;  // sorted by name
};

}  // namespace bl
