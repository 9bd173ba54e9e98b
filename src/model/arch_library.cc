#include "model/arch_library.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "model/arch_section.h"
#include "model/embedded_archs.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxArchBytes = 1u << 20;
// Documents that describe no architecture.
const char* const kCommonKeys = "common-keys";
const char* const kClassOptions = "class-options";

// Returns the number of single-letter edits that turn one word into the other.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string shortened(const std::string& name) { return name.substr(0, 80); }

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
    for (const Json& match : joined["match"]) {
      if (!match.is_string()) {
        fail(ErrorCode::kInvalidFile, "archs/{}.json: \"match\" must be a list of strings", name);
      }
      by_match_[match.get<std::string>()] = name;
    }
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

ArchSpec ArchLibrary::find(const std::string& architecture, const std::string& file) const {
  const auto it = by_match_.find(architecture);
  if (it != by_match_.end()) {
    ArchSpec spec = parse_arch(it->second, *joined_.at(it->second));
    add_common(spec);
    add_class(architecture, spec);
    return spec;
  }
  std::vector<std::pair<std::size_t, std::string>> nearest;
  for (const auto& [match, name] : by_match_) {
    nearest.emplace_back(edit_distance(shortened(architecture), match), match);
  }
  std::sort(nearest.begin(), nearest.end());
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, nearest.size()); ++i) {
    list += (i == 0 ? "" : ", ") + nearest[i].second;
  }
  fail(ErrorCode::kUnsupported,
       "{}: architecture {} is unknown; the nearest known are {} (a description of it can be "
       "given with --archs DIR)",
       file, json_text(Json(shortened(architecture))), list);
}

std::vector<std::string> ArchLibrary::architectures() const {
  std::vector<std::string> result;
  for (const auto& [match, name] : by_match_) result.push_back(match);
  return result;
}

const Json* ArchLibrary::document_for(const std::string& architecture) const {
  const auto it = by_match_.find(architecture);
  return it == by_match_.end() ? nullptr : joined_.at(it->second).get();
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
