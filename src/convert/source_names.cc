#include "convert/source_names.h"

#include <algorithm>

namespace bl {

SourceNames::SourceNames(const ModelFiles& files, const ModelLoader& loader)
    : names_(*loader.spec().arch), source_(*files.source, names_) {
  const LoadPlan& plan = loader.load_plan();
  for (const LoadTask& task : plan.tasks) {
    if (task.linear < 0 || task.tensors.empty()) continue;
    neighbours_[task.key] = task.tensors.front();
    neighbours_[plan.sites.origin(task.linear).module] = task.tensors.front();
  }
}

std::string SourceNames::name_of(const std::string& name) const {
  if (source_.find(name) != nullptr) return source_.original(name);
  const auto neighbour = neighbours_.find(name.substr(0, name.rfind('.')));
  if (neighbour == neighbours_.end()) return name;
  // What the two names have in common, the files have in their own way.
  const std::string& known = neighbour->second;
  const std::string stored = source_.original(known);
  const auto differs = std::mismatch(known.begin(), known.end(), name.begin(), name.end());
  const std::string rest(differs.first, known.end());
  if (!stored.ends_with(rest)) return name;
  std::string found = stored.substr(0, stored.size() - rest.size());
  found.append(differs.second, name.end());
  return names_.known_as(found).name == name ? found : name;
}

}  // namespace bl
