#include "model/related_archs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/nearest_name.h"

namespace bl {
namespace {

constexpr std::size_t kLongest = 80;  // bytes of a name that are compared
constexpr std::size_t kMost = 3;      // names in a message
constexpr std::size_t kShortestFamily = 3;

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// "Name3MoeForCausalLM" is of the family "name".
std::string family_of(std::string_view name) {
  for (const std::string_view end : {"For", "LMHead", "Model"}) {
    if (const auto at = name.find(end); at != 0) name = name.substr(0, at);
  }
  return lowered(name.substr(0, name.find_first_of("0123456789")));
}

// Whether the families are one, up to a suffix.
bool are_one(const std::string& a, const std::string& b) {
  return std::min(a.size(), b.size()) >= kShortestFamily && (a.starts_with(b) || b.starts_with(a));
}

bool are_one_typing_error_apart(const std::string& a, const std::string& b) {
  return std::min(a.size(), b.size()) > kShortestFamily && edit_distance(a, b) <= 1;
}

std::size_t common_beginning(const std::string& a, const std::string& b) {
  const std::size_t size = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin()).first -
      a.begin());
}

}  // namespace

std::string related_archs(std::string_view unknown, const std::vector<std::string>& known) {
  const std::string_view name = unknown.substr(0, kLongest);
  const std::string family = family_of(name);
  struct Relative {
    std::size_t common = 0;
    std::size_t distance = 0;
    std::string name;
  };
  std::vector<Relative> relatives;
  const auto add_where = [&](auto are_related) {
    for (const std::string& one : known) {
      if (!are_related(family, family_of(one))) continue;
      relatives.push_back(
          {common_beginning(lowered(name), lowered(one)), edit_distance(name, one), one});
    }
  };
  add_where(are_one);
  // A name whose family is known has no typing error, even if another family is spelled much alike.
  if (relatives.empty()) add_where(are_one_typing_error_apart);
  if (relatives.empty()) return {};
  std::stable_sort(relatives.begin(), relatives.end(), [](const Relative& a, const Relative& b) {
    return std::pair(b.common, a.distance) < std::pair(a.common, b.distance);
  });
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kMost, relatives.size()); ++i) {
    names.push_back(relatives[i].name);
  }
  return fmt::format("; known of its family {} {}", names.size() == 1 ? "is" : "are",
                     fmt::join(names, ", "));
}

}  // namespace bl
