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
    add_names(name, document, joined);
    joined_[name] = std::make_shared<const Json>(std::move(joined));
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
         config.file(), json_text(Json(shortened(type))));
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
       config.file(), json_text(Json(shortened(architecture))), list);
}

ArchLibrary::Choice ArchLibrary::find(const HfConfig& config) const {
  const std::string architecture = config.architecture();
  if (const auto it = by_match_.find(architecture); it != by_match_.end()) {
    return {parse_arch(it->second, *joined_.at(it->second)), architecture};
  }
  const auto it = by_type_.find(config.model_type());
  const bool own_code = !architecture.empty() && config.find("/auto_map.AutoModelForCausalLM");
  if (it == by_type_.end() || own_code) fail_unknown(config);
  ArchSpec spec = parse_arch(it->second, *joined_.at(it->second));
  std::string first = spec.match.empty() ? spec.name : spec.match[0];
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
