#include "model/overridden_source.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace bl {
namespace {

std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

std::set<std::string> modules_of(const TensorSource& source) {
  std::set<std::string> modules;
  for (const std::string& name : source.names()) modules.emplace(module_of(name));
  return modules;
}

}  // namespace

OverriddenSource::OverriddenSource(std::shared_ptr<const TensorSource> base,
                                   std::vector<TensorOverride> overrides)
    : base_(std::move(base)), overrides_(std::move(overrides)) {
  const std::set<std::string> own = modules_of(*base_);
  for (const TensorOverride& one : overrides_) {
    bool fits = false;
    for (const std::string& module : modules_of(*one.source)) {
      if (fnmatch(one.pattern.c_str(), module.c_str(), 0) != 0 || !own.contains(module)) continue;
      owners_[module] = one.source.get();
      fits = true;
    }
    if (!fits) {
      const auto sample = std::find_if(own.begin(), own.end(), [](const std::string& module) {
        return module.find(".0.") != std::string::npos;
      });
      fail(ErrorCode::kInvalidArgument,
           "--override: '{}' fits no module that this model and {} have; names are such as {}",
           one.pattern.substr(0, 80), one.from, sample == own.end() ? *own.begin() : *sample);
    }
  }
}

const TensorSource& OverriddenSource::source_of(std::string_view name) const {
  const auto it = owners_.find(module_of(name));
  return it == owners_.end() ? *base_ : *it->second;
}

const TensorInfo* OverriddenSource::find(std::string_view name) const {
  return source_of(name).find(name);
}

std::vector<std::string> OverriddenSource::names() const {
  return owned([](const TensorSource& source) { return source.names(); });
}

std::vector<std::string> OverriddenSource::refused_names() const {
  return owned([](const TensorSource& source) { return source.refused_names(); });
}

std::vector<std::string> OverriddenSource::owned(const List& list) const {
  std::vector<std::string> names;
  const auto add = [&](const TensorSource& source) {
    for (std::string& name : list(source)) {
      if (&source_of(name) == &source) names.push_back(std::move(name));
    }
  };
  add(*base_);
  std::set<const TensorSource*> others;
  for (const auto& [module, source] : owners_) others.insert(source);
  for (const TensorSource* source : others) add(*source);
  std::sort(names.begin(), names.end());
  return names;
}

HostArray OverriddenSource::read(std::string_view name) const { return source_of(name).read(name); }

void OverriddenSource::done_with(std::string_view name) const { source_of(name).done_with(name); }

}  // namespace bl
