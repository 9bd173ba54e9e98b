#include "base/nearest_name.h"

#include <algorithm>

namespace bl {
namespace {

constexpr std::size_t kLongest = 100;  // bytes of a word that is worth comparing

char lowered(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_letter(char a, char b) { return lowered(a) == lowered(b); }

// The length of a word without the dashes of an option.
std::size_t letters_of(std::string_view word) {
  return word.size() - std::min(word.find_first_not_of('-'), word.size());
}

// The number of edits up to which a name counts as near. Short words have few letters to go by.
std::size_t near_limit(std::string_view wrong) {
  const std::size_t letters = letters_of(wrong);
  return letters <= 3 ? letters / 3 : std::max<std::size_t>(2, letters / 3);
}

bool begins_with(std::string_view name, std::string_view beginning) {
  return name.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), name.begin(), same_letter);
}

// The shortest name that begins with an abbreviation of three letters or more.
std::string completed(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  if (letters_of(word) < 3) return best;
  for (const std::string& name : names) {
    if (begins_with(name, word) && (best.empty() || name.size() < best.size())) best = name;
  }
  return best;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i − 2, i − 1 and i of the table of distances between the beginnings of both words.
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = same_letter(a[i - 1], b[j - 1]) ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view wrong, const std::vector<std::string>& names) {
  if (wrong.size() > kLongest) return {};
  std::string best;
  std::size_t best_distance = near_limit(wrong) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(wrong, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best.empty() ? completed(wrong, names) : best;
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names) {
  const std::string near = nearest_name(wrong, names);
  return near.empty() ? std::string() : "; did you mean " + near + "?";
}

}  // namespace bl
