#include "model/renamed_source.h"

#include "base/error.h"

namespace bl {

RenamedSource::RenamedSource(const TensorSource& source, const CheckpointNames& names)
    : source_(source) {
  for (const std::string& name : source.names()) add(names, name, false);
  for (const std::string& name : source.refused_names()) add(names, name, true);
}

void RenamedSource::add(const CheckpointNames& names, const std::string& name, bool refused) {
  const CheckpointNames::Known known = names.known_as(name);
  const auto [it, added] = originals_.try_emplace(known.name);
  if (added || known.distance < it->second.distance) {
    it->second = {name, known.distance, refused};
  }
}

const std::string& RenamedSource::original(std::string_view name) const {
  const auto it = originals_.find(name);
  if (it == originals_.end()) fail(ErrorCode::kNotFound, "no tensor {}", name);
  return it->second.name;
}

const TensorInfo* RenamedSource::find(std::string_view name) const {
  const auto it = originals_.find(name);
  return it == originals_.end() ? nullptr : source_.find(it->second.name);
}

std::vector<std::string> RenamedSource::listed(bool refused) const {
  std::vector<std::string> result;
  for (const auto& [name, from] : originals_) {
    if (from.refused == refused) result.push_back(name);
  }
  return result;
}

std::vector<std::string> RenamedSource::names() const { return listed(false); }
std::vector<std::string> RenamedSource::refused_names() const { return listed(true); }

HostArray RenamedSource::read(std::string_view name) const { return source_.read(original(name)); }

HostArray RenamedSource::read_seeded(std::string_view name) const {
  return source_.read_seeded(original(name));
}

void RenamedSource::done_with(std::string_view name) const {
  const auto it = originals_.find(name);
  if (it != originals_.end()) source_.done_with(it->second.name);
}

}  // namespace bl
