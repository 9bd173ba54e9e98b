#include "model/arch_library.h"

#include "base/error.h"
#include "base/json.h"
#include "model/arch_section.h"
#include "model/embedded_archs.h"
#include "model/related_archs.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxArchBytes = 1u << 20;
constexpr std::size_t kShownBytes = 80;  // of a name in a message
// Documents that describe no architecture.
const char* const kCommonKeys = "common-keys";
const char* const kClassOptions = "class-options";

}  // namespace

ArchLibrary::ArchLibrary(const std::filesystem::path& folder) {
  for (const EmbeddedDocument& arch : embedded_archs()) {
    add(std::string(arch.name), parse_json(arch.text, "archs/" + std::string(arch.name) + ".json"));
  }
  if (!folder.empty()) {
    if (!std::filesystem::is_directory(folder)) {
      fail(ErrorCode::kNotFound, "{}: no such folder of architectures", folder.string());
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") {
        add(entry.path().stem().string(), read_json_file(entry.path(), kMaxArchBytes));
      }
    }
  }
  join_all();
}

void ArchLibrary::add(const std::string& name, Json document) {
  documents_[name] = std::make_shared<const Json>(std::move(document));
}

void ArchLibrary::join_all() {
  for (const auto& [name, written] : documents_) {
    const Json& document = *written;
    if (!document.is_object() || !document.contains("match")) continue;
    Json joined = document;
    if (document.contains("extends")) {
      const Json& extends = document["extends"];
      const auto base =
          extends.is_string() ? documents_.find(extends.get<std::string>()) : documents_.end();
      if (base == documents_.end()) {
        fail(ErrorCode::kInvalidFile, "archs/{}.json: extends {}, which is no document of archs/",
             name, json_text(extends));
      }
      if (base->second->contains("extends")) {
        fail(ErrorCode::kInvalidFile,
             "archs/{}.json: extends {}, which extends another; only one step is allowed", name,
             base->first);
      }
      joined = join_arch(*base->second, document);
    }
    add_names(name, document, joined);
    joined_[name] = std::make_shared<const Json>(std::move(joined));
  }
}

void ArchLibrary::add_common(ArchSpec& spec) const {
  ArchSection section(*documents_.at(kCommonKeys), fmt::format("archs/{}.json", kCommonKeys));
  section.find("about");
  read_without_effect(section, spec.without_effect);
  std::vector<Refusal> refusals;
  read_refusals(section, refusals);
  section.done();
  for (Refusal& refusal : refusals) {
    // An architecture that reads the key itself knows what to do with it.
    const std::string key = key_of_term(refusal.condition.terms.at(0));
    const auto known = spec.config_keys.lower_bound(key);
    if (known != spec.config_keys.end() && (*known == key || known->starts_with(key + "."))) {
      continue;
    }
    spec.refuse.insert(spec.refuse.begin(), std::move(refusal));
  }
}

void ArchLibrary::add_class(const std::string& architecture, ArchSpec& spec) const {
  const Json& classes = *documents_.at(kClassOptions);
  const auto entry = classes.find(architecture);
  if (entry == classes.end()) return;
  const auto options_of = [](const Json& json) {
    if (!json.is_object() || !json.contains("defaults") || !json["defaults"].is_object()) {
      fail(ErrorCode::kInvalidFile, "archs/{}.json: an entry has no object \"defaults\"",
           kClassOptions);
    }
    ClassOptions options;
    options.defaults = std::make_shared<const Json>(json.at("defaults"));
    if (json.contains("aliases")) json["aliases"].get_to(options.aliases);
    return options;
  };
  if (!entry->contains("text")) {
    spec.class_options.emplace("", options_of(*entry));
    return;
  }
  spec.text_kind = entry->at("text_kind").get<std::string>();
  for (const auto& [kind, options] : entry->at("text").items()) {
    spec.class_options.emplace(kind, options_of(options));
  }
}

// Model types are those of the document itself: a relative that extends it has other ones.
void ArchLibrary::add_names(const std::string& name, const Json& document, const Json& joined) {
  const auto read = [&](const Json& from, const char* key, std::map<std::string, std::string>& to) {
    const auto list = from.find(key);
    if (list == from.end()) return;
    for (const Json& item : *list) {
      if (!item.is_string()) {
        fail(ErrorCode::kInvalidFile, "archs/{}.json: \"{}\" must be a list of strings", name, key);
      }
      to[item.get<std::string>()] = name;
    }
  };
  read(joined, "match", by_match_);
  read(document, "model_types", by_type_);
}

void ArchLibrary::fail_unknown(const HfConfig& config) const {
  const std::string architecture = config.architecture();
  const std::string type = config.model_type();
  if (architecture.empty() && type.empty()) {
    fail(ErrorCode::kInvalidFile,
         "{}: neither \"architectures\", a list with the name of the model class, nor "
         "\"model_type\" says what model this is; copy them from the model's original config.json",
         config.file());
  }
  if (architecture.empty()) {
    fail(ErrorCode::kUnsupported,
         "{}: no \"architectures\", and model_type {} is unknown (a description of it can be given "
         "with --archs DIR)",
         config.file(), json_text(Json(type.substr(0, kShownBytes))));
  }
  fail(ErrorCode::kUnsupported,
       "{}: architecture {} is unknown{} (a description of it can be given with --archs DIR; "
       "archs/README.md says how)",
       config.file(), json_text(Json(architecture.substr(0, kShownBytes))),
       related_archs(architecture, architectures()));
}

ArchSpec ArchLibrary::described(const std::string& name, const std::string& architecture) const {
  ArchSpec spec = parse_arch(name, *joined_.at(name));
  add_common(spec);
  add_class(architecture, spec);
  return spec;
}

ArchLibrary::Choice ArchLibrary::find(const HfConfig& config) const {
  const std::string architecture = config.architecture();
  if (const auto it = by_match_.find(architecture); it != by_match_.end()) {
    return {described(it->second, architecture), architecture};
  }
  const auto it = by_type_.find(config.model_type());
  const bool own_code = !architecture.empty() && config.find("/auto_map.AutoModelForCausalLM");
  if (it == by_type_.end() || own_code) fail_unknown(config);
  const Json& document = *joined_.at(it->second);
  const auto match = document.find("match");
  std::string first =
      match == document.end() || match->empty() ? it->second : match->at(0).get<std::string>();
  ArchSpec spec = described(it->second, first);
  return {std::move(spec), std::move(first), !architecture.empty()};
}

std::vector<std::string> ArchLibrary::architectures() const {
  std::vector<std::string> result;
  for (const auto& [match, name] : by_match_) result.push_back(match);
  return result;
}

const Json* ArchLibrary::document(const std::string& name) const {
  const auto it = documents_.find(name);
  return it == documents_.end() ? nullptr : it->second.get();
}

std::vector<std::string> ArchLibrary::names() const {
  std::vector<std::string> result;
  for (const auto& [name, document] : documents_) result.push_back(name);
  return result;
}

}  // namespace bl
