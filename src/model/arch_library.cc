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

ArchSpec ArchLibrary::find(const std::string& architecture, const std::string& file) const {
  const auto it = by_match_.find(architecture);
  if (it != by_match_.end()) return parse_arch(it->second, *joined_.at(it->second));
  fail(ErrorCode::kUnsupported,
       "{}: architecture {} is unknown{} (a description of it can be given with --archs DIR; "
       "archs/README.md says how)",
       file, json_text(Json(architecture.substr(0, kShownBytes))),
       related_archs(architecture, architectures()));
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
