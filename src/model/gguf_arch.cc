#include "model/gguf_arch.h"

#include "base/error.h"
#include "base/json.h"
#include "model/arch_section.h"
#include "model/related_archs.h"

namespace bl {
namespace {

constexpr std::string_view kPrefix = "gguf-";

GgufTensorRule::Rotary parse_rotary(const std::string& word, const std::string& where) {
  if (word == "query") return GgufTensorRule::Rotary::kQuery;
  if (word == "key") return GgufTensorRule::Rotary::kKey;
  fail(ErrorCode::kInvalidFile, R"({}: "rotary" is "{}", must be "query" or "key")", where, word);
}

std::vector<GgufTensorRule::Part> parse_parts(const Json& json, const std::string& where) {
  std::vector<GgufTensorRule::Part> parts;
  for (const Json& item : json) {
    ArchSection section(item, where);
    GgufTensorRule::Part part;
    section.read("to", part.to);
    section.read("rows", part.rows);
    std::string rotary;
    section.read("rotary", rotary);
    section.done();
    if (!rotary.empty()) part.rotary = parse_rotary(rotary, where);
    parts.push_back(std::move(part));
  }
  return parts;
}

GgufTensorRule parse_rule(const Json& json, const std::string& where) {
  GgufTensorRule rule;
  if (json.is_string()) {
    rule.to = json.get<std::string>();
    return rule;
  }
  ArchSection section(json, where);
  std::string rotary;
  section.read("to", rule.to);
  section.read("rotary", rotary);
  section.read("transpose", rule.transpose);
  section.read("flatten", rule.flatten);
  if (const Json* add = section.find("add")) {
    if (!add->is_number()) fail(ErrorCode::kInvalidFile, "{}.add must be a number", where);
    rule.add = add->get<float>();
  }
  if (const Json* parts = section.find("parts")) rule.parts = parse_parts(*parts, where);
  section.done();
  if (!rotary.empty()) rule.rotary = parse_rotary(rotary, where);
  return rule;
}

GgufJoin parse_join(const std::string& to, const Json& json, const std::string& where) {
  GgufJoin join;
  join.to = to;
  ArchSection section(json, where);
  section.read("of", join.of);
  section.read("interleave", join.interleave);
  section.read("transpose", join.transpose);
  section.done();
  if (join.of.size() < 2) {
    fail(ErrorCode::kInvalidFile, "{}.of must name at least two tensors", where);
  }
  return join;
}

void read_lists(ArchSection& section, const char* name, std::map<std::string, std::string>& to) {
  const Json* lists = section.find(name);
  if (lists == nullptr) return;
  ArchSection reader(*lists, section.where(name));
  for (const auto& [tensor, key] : lists->items()) reader.read(tensor.c_str(), to[tensor]);
}

// Returns the document joined with the one that it extends (at most one, as in ArchLibrary).
Json joined_document(const ArchLibrary& library, const std::string& name) {
  const Json& document = *library.document(name);
  if (!document.is_object()) fail(ErrorCode::kInvalidFile, "archs/{}.json: not an object", name);
  const auto extends = document.find("extends");
  if (extends == document.end()) return document;
  const Json* base = extends->is_string() ? library.document(extends->get<std::string>()) : nullptr;
  if (base == nullptr || !base->is_object() || base->contains("extends")) {
    fail(ErrorCode::kInvalidFile, "archs/{}.json: extends {}, which cannot be extended", name,
         extends->dump());
  }
  // Within a section a whole entry replaces another; null removes it.
  Json joined = *base;
  joined.erase("abstract");
  for (const auto& [section, value] : document.items()) {
    if (section == "extends") continue;
    if (!value.is_object() || !joined[section].is_object()) {
      joined[section] = value;
      continue;
    }
    for (const auto& [key, entry] : value.items()) {
      if (entry.is_null()) {
        joined[section].erase(key);
      } else {
        joined[section][key] = entry;
      }
    }
  }
  return joined;
}

std::vector<std::string> known_architectures(const ArchLibrary& library) {
  std::vector<std::string> list;
  for (const std::string& name : library.names()) {
    const Json* document = library.document(name);
    if (!name.starts_with(kPrefix) || !document->is_object() || document->contains("abstract")) {
      continue;
    }
    list.push_back(name.substr(kPrefix.size()));
  }
  return list;
}

}  // namespace

const GgufTensorRule* GgufArch::rule_for(std::string_view tensor) const {
  const auto it = tensors.find(tensor);
  return it == tensors.end() ? nullptr : &it->second;
}

GgufArch find_gguf_arch(const ArchLibrary& library, std::string_view architecture,
                        const std::string& file) {
  const std::string name = std::string(kPrefix) + std::string(architecture.substr(0, 80));
  const Json* document = library.document(name);
  if (document == nullptr || !document->is_object() || document->contains("abstract")) {
    fail(
        ErrorCode::kUnsupported,
        "{}: GGUF architecture {} is unknown{} (a description of it can be given with --archs DIR; "
        "archs/README.md says how)",
        file, json_text(Json(architecture.substr(0, 80))),
        related_archs(architecture, known_architectures(library)));
  }
  const Json json = joined_document(library, name);
  GgufArch arch;
  arch.name = name + ".json";
  const std::string where = "archs/" + arch.name;
  ArchSection section(json, where);
  const Json* hf = section.find("architecture");
  if (hf == nullptr) fail(ErrorCode::kInvalidFile, "{}: \"architecture\" is missing", where);
  arch.architecture = *hf;
  if (const Json* config = section.find("config")) arch.config = *config;
  if (const Json* tokenizer = section.find("tokenizer")) arch.tokenizer = *tokenizer;
  if (const Json* tensors = section.find("tensors")) {
    for (const auto& [from, rule] : tensors->items()) {
      arch.tensors.emplace(from, parse_rule(rule, where + ": tensors." + from));
    }
  }
  if (const Json* joins = section.find("joins")) {
    for (const auto& [to, join] : joins->items()) {
      arch.joins.push_back(parse_join(to, join, where + ": joins." + to));
    }
  }
  read_lists(section, "values", arch.values);
  read_lists(section, "scalars", arch.scalars);
  section.done();
  return arch;
}

}  // namespace bl
