#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors_file.h"

namespace bl {

// All tensors of a model folder, whatever its files are called. These files count, as in
// transformers:
//
//   model.safetensors  alone, unless an index names it among its shards
//   the shards that model.safetensors.index.json names, or the only other index. What a shard holds
//                      counts, not where the index places it. Tensors of a shard that is missing
//                      are refused when somebody asks for them. An index that names no file of the
//                      folder is ignored
//   all files          where there is neither
//
// EXL2 folders carry the stale index of the source model; they are recognised by their headers (a
// tensor *.q_weight), and in them every *.safetensors file counts. A tensor may occur in several
// files if its bytes are the same in all of them.
class SafetensorsFolder : public TensorSource {
 public:
  // Opens a folder, or one .safetensors file. Throws kNotFound where there are no such files, kIo
  // where they cannot be read, kInvalidFile where they break the format.
  explicit SafetensorsFolder(const std::filesystem::path& path);

  // Throws kNotFound for a tensor of a missing shard.
  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::vector<std::string> refused_names() const override;
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
  struct Absence {
    std::string shard;
    std::string index;  // the file that names it
  };
  std::map<std::string, Absence, std::less<>> absent_;  // tensors of missing shards
};

}  // namespace bl
