#include "sample/sampling_preset.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/nearest_name.h"
#include "sample/embedded_presets.h"
#include "sample/sampling_json.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1u << 20;

bool is_path(std::string_view source) {
  return source.find('/') != source.npos || source.ends_with(".json");
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace

SamplingPreset SamplingPreset::load(std::string_view source, const std::filesystem::path& folder) {
  if (is_path(source)) {
    const std::filesystem::path path{source};
    return parse(read_json_file(path, kMaxFileBytes), path.stem().string(), path.string());
  }
  const std::filesystem::path in_folder = folder / (std::string(source) + ".json");
  if (!folder.empty() && is_file(in_folder)) {
    return parse(read_json_file(in_folder, kMaxFileBytes), source, in_folder.string());
  }
  for (const EmbeddedDocument& preset : embedded_presets()) {
    if (preset.name != source) continue;
    const std::string what = fmt::format("preset {}", source);
    return parse(parse_json(preset.text, what), source, what);
  }
  const std::vector<std::string> known = names(folder);
  fail(ErrorCode::kNotFound,
       "there is no preset '{}'{} (available are {}; or give the path of a JSON file)", source,
       did_you_mean(source, known), joined(known));
}

std::vector<std::string> SamplingPreset::names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const EmbeddedDocument& preset : embedded_presets()) names.emplace_back(preset.name);
  std::error_code error;
  if (!folder.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

SamplingPreset SamplingPreset::parse(const Json& document, std::string_view name,
                                     std::string_view what) {
  if (!document.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: should be a JSON object of sampling parameters", what);
  }
  SamplingPreset preset;
  preset.name_ = name;
  Json values = Json::object();
  for (const auto& [key, value] : document.items()) {
    if (key == "description") {
      if (!value.is_string()) {
        fail(ErrorCode::kInvalidArgument, "{}: description should be a string", what);
      }
      preset.description_ = value.get<std::string>();
      continue;
    }
    Rule rule{.key = key, .value = value};
    if (value.is_object() && value.contains("override")) {
      for (const auto& [part, content] : value.items()) {
        const bool flag = part == "force" || part == "additive";
        if ((!flag && part != "override") || (flag && !content.is_boolean())) {
          fail(ErrorCode::kInvalidArgument,
               "{}: {} has a wrong {}; it should have override, and may have force and additive, "
               "true or false",
               what, json_text(Json(key)), json_text(Json(part)));
        }
      }
      rule.value = value["override"];
      rule.force = value.value("force", false);
      rule.additive = value.value("additive", false);
    }
    values[key] = rule.value;
    preset.rules_.push_back(std::move(rule));
  }
  SamplingParams probe = SamplingParams::plain();
  read_sampling(values, what, UnknownKeys::kRefuse, probe);
  try {
    validate(probe);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", what, error.what());
  }
  return preset;
}

Json SamplingPreset::merged(const Json& request) const {
  Json result = request;
  for (const Rule& rule : rules_) {
    // The request may use another name for the same key.
    const auto same = [&](const std::string& key) {
      return sampling_key(key) == sampling_key(rule.key);
    };
    std::vector<std::string> given;
    for (const auto& [key, value] : request.items()) {
      if (same(key) && !value.is_null()) given.push_back(key);
    }
    if (given.empty() || rule.force) {
      for (const std::string& key : given) result.erase(key);
      result[rule.key] = rule.value;
    } else if (rule.additive) {
      const std::string& key = given.front();
      Json list = listed_sampling(rule.value, name_, rule.key);
      for (const Json& item : listed_sampling(request[key], "the request", key)) {
        list.push_back(item);
      }
      for (const std::string& other : given) result.erase(other);
      result[key] = std::move(list);
    }
  }
  return result;
}

bool SamplingPreset::adds(std::string_view key) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return rule.additive && sampling_key(rule.key) == sampling_key(key);
  });
}

void SamplingPreset::apply_forced(SamplingParams& params) const {
  Json values = Json::object();
  for (const Rule& rule : rules_) {
    if (rule.force) values[rule.key] = rule.value;
  }
  read_sampling(values, name_, UnknownKeys::kRefuse, params);
}

void SamplingPreset::apply(SamplingParams& params) const {
  read_sampling(merged(Json::object()), name_, UnknownKeys::kRefuse, params);
}

}  // namespace bl
