#include "model/gguf_source.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "model/gguf_planner.h"
#include "tensor/tensor.h"

namespace bl {

GgufSource::GgufSource(std::shared_ptr<const GgufFile> file, const GgufMetadata& metadata)
    : file_(std::move(file)) {
  GgufPlanner(*this, *file_, metadata).plan();
}

void GgufSource::add(const std::string& name, GgufRecipe recipe) {
  TensorInfo info{.dtype = DType::kF16, .shape = recipe.shape, .file = file_->name()};
  const std::string from = recipe.sources[0]->name;
  if (!entries_.emplace(name, Entry{std::move(info), std::move(recipe)}).second) {
    fail(ErrorCode::kInvalidFile, "{}: tensor {} and another one both give {}", file_->name(), from,
         name);
  }
}

const GgufSource::Entry& GgufSource::entry(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    fail(ErrorCode::kNotFound, "{}: no tensor gives {}", file_->name(), name);
  }
  return it->second;
}

std::string GgufSource::label(std::string_view name) const {
  return fmt::format("{}: tensor {}", file_->name(), name);
}

const TensorInfo* GgufSource::find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second.info;
}

std::vector<std::string> GgufSource::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

HostArray GgufSource::read(std::string_view name) const {
  const Entry& entry = this->entry(name);
  auto tensor = std::make_shared<Tensor>(make_host_tensor(DType::kF16, entry.info.shape));
  const TensorView view = tensor->view();
  expander_.expand(entry.recipe, label(name),
                   {view.as<Half>(), static_cast<std::size_t>(view.shape.elements())});
  return {view, std::move(tensor)};
}

void GgufSource::stream(std::string_view name, const GgufExpander::Sink& sink) const {
  expander_.stream(entry(name).recipe, label(name), sink);
}

void GgufSource::done_with(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;
  for (const GgufTensor* tensor : it->second.recipe.sources) file_->done_with(tensor->bytes);
}

}  // namespace bl
