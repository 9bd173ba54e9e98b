#pragma once
// Suggestions for misspelled names: options, commands, values, keys, architectures.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// The number of edits that turn one word into the other, where an edit inserts, removes or replaces
// a letter or exchanges two neighboring ones (optimal string alignment). The case of ASCII letters
// does not matter. Takes time in proportion to the product of the lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name in `names` that `wrong` most likely means: the one with the smallest edit distance, or
// else the shortest one that begins with `wrong`. Empty where none is near, and where `wrong` is
// longer than any name that people type.
std::string nearest_name(std::string_view wrong, const std::vector<std::string>& names);

// The end of an error message: "; did you mean --top-k?", or empty where no name is near.
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace bl
