#include "model/renamed_source.h"

#include "base/error.h"

namespace bl {

std::string renamed(std::string name,
                    const std::vector<std::pair<std::string, std::string>>& rules) {
  for (const auto& [pattern, to] : rules) {
    if (pattern.starts_with('^')) {
      const std::size_t length = pattern.size() - 1;
      if (name.compare(0, length, pattern, 1) == 0) name.replace(0, length, to);
      continue;
    }
    for (std::size_t at = name.find(pattern); at != std::string::npos;
         at = name.find(pattern, at + to.size())) {
      name.replace(at, pattern.size(), to);
    }
  }
  return name;
}

RenamedSource::RenamedSource(const TensorSource& source,
                             const std::vector<std::pair<std::string, std::string>>& rules)
    : source_(source) {
  if (rules.empty()) return;
  for (const std::string& name : source.names()) {
    const std::string to = renamed(name, rules);
    if (to == name) {
      originals_[to] = name;
    } else {
      originals_.emplace(to, name);
    }
  }
}

const std::string* RenamedSource::original(std::string_view name) const {
  const auto it = originals_.find(name);
  return it == originals_.end() ? nullptr : &it->second;
}

const TensorInfo* RenamedSource::find(std::string_view name) const {
  if (originals_.empty()) return source_.find(name);
  const std::string* from = original(name);
  return from == nullptr ? nullptr : source_.find(*from);
}

std::vector<std::string> RenamedSource::names() const {
  if (originals_.empty()) return source_.names();
  std::vector<std::string> result;
  for (const auto& [name, from] : originals_) result.push_back(name);
  return result;
}

std::string_view RenamedSource::name_read(std::string_view name) const {
  if (originals_.empty()) return name;
  const std::string* from = original(name);
  if (from == nullptr) fail(ErrorCode::kNotFound, "no tensor {}", name);
  return *from;
}

HostArray RenamedSource::read(std::string_view name) const { return source_.read(name_read(name)); }

HostArray RenamedSource::read_seeded(std::string_view name) const {
  return source_.read_seeded(name_read(name));
}

void RenamedSource::done_with(std::string_view name) const {
  if (originals_.empty()) return source_.done_with(name);
  if (const std::string* from = original(name)) source_.done_with(*from);
}

}  // namespace bl
