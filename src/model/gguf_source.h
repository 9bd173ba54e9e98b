#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_file.h"
#include "format/tensor_source.h"
#include "model/gguf_arch.h"
#include "model/gguf_config.h"
#include "model/gguf_recipe.h"

namespace bl {

// The tensors of a GGUF file as the model knows them: with the names, shapes and row orders of its
// Hugging Face form, and values rounded to fp16 when they are read. Restores the order of rotary
// rows, splits or joins stacked experts, and removes offsets that were folded into norms.
class GgufSource : public TensorSource {
 public:
  // Throws kInvalidFile or kUnsupported for tensors that have no place in the architecture, have an
  // element type that cannot be read, or contradict the metadata in their shape.
  GgufSource(std::shared_ptr<const GgufFile> file, const GgufMetadata& metadata);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

  // Like read(), but in pieces, for tensors larger than memory.
  void stream(std::string_view name, const GgufExpander::Sink& sink) const;

 private:
  struct Entry {
    TensorInfo info;
    GgufRecipe recipe;
  };
  void add(const std::string& name, GgufRecipe recipe);
  const Entry& entry(std::string_view name) const;
  std::string label(std::string_view name) const;  // for messages

  friend class GgufPlanner;
  std::shared_ptr<const GgufFile> file_;
  GgufExpander expander_;
  std::deque<GgufTensor> lists_;  // elements of metadata lists seen as tensors, at fixed addresses
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace bl
